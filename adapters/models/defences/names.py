"""A defence by its name: `jpeg`, `art:jpeg:quality=50`, `jpeg:quality=50,gradients=none`."""

import re
from typing import Any, NamedTuple

from ....errors import InvalidInput, UnknownName
from ...parameters import check_parameter, parse_parameter
from .catalogue import DEFENCES, ROWS
from .spec import WAYS, DefenceSpec, Gradients

_SETTING = re.compile(r"[a-z_]+=[^,:+=]+")


class NamedDefence(NamedTuple):
    """A defence with every parameter, and how gradients pass it."""

    defence: DefenceSpec
    parameters: dict[str, Any]
    gradients: Gradients


def known_defences() -> list[str]:
    """Every name, the short ones first."""
    return [*dict.fromkeys(row.name for row in ROWS), *DEFENCES]


def is_defence(text: str) -> bool:
    """Whether a text begins as the name of a defence does, whatever its parameters."""
    head, _, rest = text.partition(":")
    return head in {row.name for row in ROWS} or f"{head}:{rest.partition(':')[0]}" in DEFENCES


def describe_gradients(model: str) -> str:
    """How gradients pass the named defences of a model, where they are not exact; "" where there is nothing to say."""
    said = {
        "straight-through": "gradients pass {} as if it changed nothing (BPDA): that it stands is no proof",
        "none": "no gradients pass {}: attacks by gradients cannot succeed, which says nothing of the defence",
    }
    named = [parse_defence(part) for part in model.split("+")[1:] if is_defence(part)]
    lines = [said[each.gradients].format(each.defence.full_name) for each in named if each.gradients in said]
    return "; ".join(dict.fromkeys(lines))


def describe_sampling(model: str, *, is_random: bool, draws: int, eot: int) -> str:
    """How a random model is judged, and what to do where the attack takes it for deterministic; "" for others.

    Args:
        model: its name; the defences that draw are named.
        is_random: whether it draws random numbers.
        draws: that judge an example.
        eot: whose mean the attack sees.
    """
    if not is_random:
        return ""
    named = [parse_defence(part).defence for part in model.split("+")[1:] if is_defence(part)]
    drawn = ", ".join(dict.fromkeys(each.full_name for each in named if each.random)) or "the model"
    line = f"{drawn} draws random numbers: every example is judged by {draws} draws"
    if eot > 1:
        return f"{line}; attacks see the mean of {eot}, each a query (EOT)"
    return f"{line}; the attack takes it for deterministic: `eot=20` lets it see the mean of 20 draws (EOT)"


def parse_defence(text: str) -> NamedDefence:
    """The defence that a text names, with its parameters.

    Args:
        text: NAME or LIBRARY:NAME, perhaps with ":key=value,key=value" behind it.

    Raises:
        UnknownName: if there is no such defence, or it has no such parameter.
        InvalidInput: if a value is none, or gradients cannot pass it so.
    """
    *names, settings = text.split(":") if "=" in text else [*text.split(":"), ""]
    name = ":".join(names)
    row = DEFENCES.get(name) or next((row for row in ROWS if row.name == name), None)
    if row is None:
        known, _, rest = name.rpartition(":")
        if is_defence(name) and known and not settings:
            raise InvalidInput(f"expected {known}:KEY=VALUE, got {rest!r} without a value")
        raise UnknownName("defence", name, known_defences())
    values = {word: default for word, (_, default) in row.params.items()}
    gradients: str = row.gradients[0]
    for setting in filter(None, settings.split(",")):
        word, _, value = setting.partition("=")
        if not _SETTING.fullmatch(setting):
            raise InvalidInput(f"expected {row.full_name}:KEY=VALUE,KEY=VALUE, got {text!r}")
        if word == "gradients":
            gradients = value
        elif word not in row.params:
            raise UnknownName(f"parameter of {row.full_name}", word, [*row.params, "gradients"])
        else:
            values[word] = parse_parameter(word, value, {word: row.params[word][0]})
    if gradients not in row.gradients:
        why = f"; {row.full_name} has no derivative" if gradients in WAYS else ""
        raise InvalidInput(f"expected gradients {' or '.join(row.gradients)}, got {gradients}{why}")
    values = {word: check_parameter(word, value, {word: row.params[word][0]}) for word, value in values.items()}
    if "window" in values and values["window"] % 2 == 0:
        raise InvalidInput(f"expected window as an odd number, got {values['window']}")
    return NamedDefence(row, values, next(way for way in WAYS if way == gradients))
