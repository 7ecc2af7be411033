"""The rules by which a targeted attack gets its target classes, as texts."""

from ...errors import InvalidInput

RULES = ("second-likely", "least-likely", "random")


def class_of(rule: str) -> int | None:
    """The class number that a rule is; None if it is none."""
    return int(rule) if rule.isascii() and rule.isdecimal() and len(rule) <= 9 else None


def check_target(rule: str) -> str:
    """The rule itself.

    Raises:
        InvalidInput: if it is neither a known word nor a class number.
    """
    if rule not in RULES and class_of(rule) is None:
        raise InvalidInput(f"expected a target of {', '.join(RULES)} or a class number such as 3, got {rule!r}")
    return rule
