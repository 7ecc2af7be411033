"""Parses names of defences: `jpeg`, `art:jpeg:quality=50`, `jpeg:quality=50,gradients=none`, `ensemble:MODEL`."""

import re
from typing import Any, NamedTuple

from ....errors import InvalidInput, UnknownName
from .catalogue import DEFENCES, MEMBER, ROWS, WAYS, DefenceSpec, Gradients

_SETTING = re.compile(r"[a-z_]+=[^,:+=]+")
_SETTINGS = re.compile(rf"{_SETTING.pattern}(,{_SETTING.pattern})*")


class NamedDefence(NamedTuple):
    """A defence, its parameters, and how gradients pass through it."""

    defence: DefenceSpec
    parameters: dict[str, Any]
    gradients: Gradients


def known_defences() -> list[str]:
    """Return all names of defences, the short ones first."""
    return [*dict.fromkeys(row.name for row in ROWS), *DEFENCES]


def is_defence(text: str) -> bool:
    """Whether a text starts with the name of a defence, which parameters may follow."""
    head, _, rest = text.partition(":")
    return head in {row.name for row in ROWS} or f"{head}:{rest.partition(':')[0]}" in DEFENCES


def member_of(part: str) -> str:
    """Return the model, file or folder in a defence's name: "net.py:make" for "ensemble:net.py:make". "" for others."""
    row = _row_with_member(part)
    return "" if row is None else _split_member(row, part)[0]


def describe_gradients(model: str) -> str:
    """Describe how gradients pass through the defences in a model's name. "" if all gradients are exact."""
    notes = {
        "straight-through": "gradients pass through {} as if it were the identity (BPDA). "
        "Surviving this attack does not show robustness.",
        "none": "{} blocks gradients, so gradient attacks cannot succeed. This says nothing about the defence.",
    }
    named = [parse_defence(part) for part in model.split("+")[1:] if is_defence(part)]
    lines = [notes[each.gradients].format(each.defence.full_name) for each in named if each.gradients in notes]
    return " ".join(dict.fromkeys(lines))


def describe_sampling(model: str, *, is_random: bool, draws: int, eot: int) -> str:
    """Describe how a random model is judged, and warn if the attack treats it as deterministic. "" for other models.

    Args:
        model: name of the model, which includes its random defences.
        is_random: whether the model draws random numbers.
        draws: number of samples on which the judge classifies an example.
        eot: number of samples that the attack averages.
    """
    if not is_random:
        return ""
    named = [parse_defence(part).defence for part in model.split("+")[1:] if is_defence(part)]
    drawn = ", ".join(dict.fromkeys(each.full_name for each in named if each.random)) or "the model"
    line = f"{drawn} draws random numbers, so each example is judged on {draws} samples"
    if eot > 1:
        return f"{line}; attacks see the mean of {eot} samples, each counted as a query (EOT)"
    return f"{line}; the attack treats the model as deterministic: `eot=20` averages 20 samples per query (EOT)"


def parse_defence(text: str) -> NamedDefence:
    """Parse the name of a defence and its parameters.

    Args:
        text: NAME or LIBRARY:NAME, which ":key=value,key=value" may follow. Between them ":MODEL" for an ensemble, and
            ":FILE.py:NAME" or ":FOLDER" for a purifier.

    Raises:
        UnknownName: if there is no such defence, or the defence has no such parameter.
        InvalidInput: if a value is invalid, or the defence does not support the gradients.
    """
    row, member = _row_with_member(text), ""
    if row is not None:
        member, settings = _split_member(row, text)
        if not member:
            wanted = "MODEL" if row.takes == "model" else "FILE.py:NAME, or a folder of diffusers"
            raise InvalidInput(f"expected {row.name}:{wanted}, got only {text!r}")
    else:
        *names, settings = text.split(":") if "=" in text else [*text.split(":"), ""]
        name = ":".join(names)
        row = DEFENCES.get(name) or next((row for row in ROWS if row.name == name), None)
        if row is None:
            known, _, rest = name.rpartition(":")
            if is_defence(name) and known and not settings:
                raise InvalidInput(f"expected {known}:KEY=VALUE, got {rest!r} without a value")
            raise UnknownName("defence", name, known_defences())
    given: dict[str, str] = {}
    for setting in filter(None, settings.split(",")):
        if not _SETTING.fullmatch(setting):
            raise InvalidInput(f"expected {row.full_name}:KEY=VALUE,KEY=VALUE, got {text!r}")
        word, _, value = setting.partition("=")
        if word in given:
            raise InvalidInput(f"expected {word} once in {text!r}, got it several times")
        given[word] = value
    gradients = given.pop("gradients", row.gradients[0])
    values = ({MEMBER: member} if member else {}) | row.complete(given, "gradients")
    if gradients not in row.gradients:
        why = f"; {row.full_name} has no derivative" if gradients in WAYS else ""
        raise InvalidInput(f"expected gradients as {' or '.join(row.gradients)}, got {gradients}{why}")
    return NamedDefence(row, values, next(way for way in WAYS if way == gradients))


def write_defence(named: NamedDefence) -> str:
    """Write the full name of a defence with all parameters, which `parse_defence` reads."""
    values = {**named.parameters, "gradients": named.gradients}
    parts = [named.defence.full_name, *filter(None, [values.pop(MEMBER, "")])]
    if named.defence.takes != "model":
        parts.append(",".join(f"{word}={value}" for word, value in values.items()))
    return ":".join(parts)


def _row_with_member(text: str) -> DefenceSpec | None:
    """Return the defence if its name must be followed by a model, file or folder. None for other names."""
    heads = (text.partition(":")[0], ":".join(text.split(":")[:2]))
    return next((row for row in ROWS if row.takes and {row.name, row.full_name} & {*heads}), None)


def _split_member(row: DefenceSpec, text: str) -> tuple[str, str]:
    """Split the name of a defence with a member into the member and the settings."""
    name = row.full_name if text.startswith(row.full_name) else row.name
    rest = text.removeprefix(name).removeprefix(":")
    before, _, last = rest.rpartition(":")
    return (before, last) if row.params and _SETTINGS.fullmatch(last) else (rest, "")
