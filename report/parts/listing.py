"""Several names in a sentence."""

from collections.abc import Sequence

NAMED = 3  # that a sentence names, where nothing else is said


def listed(names: Sequence[str], most: int = NAMED, *, between: str = ", ", last: str = "") -> str:
    """The first few names: "a, b, c and 2 more"; `last` stands before the last of them if they are all."""
    if len(names) > most:
        return f"{between.join(names[:most])}{between.rstrip(', ')} and {len(names) - most} more"
    return last.join([between.join(names[:-1]), names[-1]]) if last and len(names) > 1 else between.join(names)
