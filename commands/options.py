"""What the commands share: the types of their options, rows, parameters from text."""

from typing import Annotated, Any

import typer

from ..errors import InvalidInput, UnknownName

Model = Annotated[str, typer.Option(help="demo:efficientnet-lite0|1|2, torchvision:NAME, timm:NAME, FILE.py:FACTORY")]
Data = Annotated[str, typer.Option(help="demo:imagenet, imagefolder:PATH, npz:PATH, foolbox:cifar10|cifar100|mnist")]
Libraries = Annotated[list[str] | None, typer.Option("--library", help="only this library (repeatable)")]
Json = Annotated[bool, typer.Option("--json", help="one JSON document instead of tables")]


def choose_rows(attack: str | None, libraries: list[str] | None, *, repaired: bool) -> list[Any]:
    """The rows of an attack (None: of all), of the named libraries, in the catalogue's order."""
    from ..adapters import IMPLEMENTATIONS, implementations_of
    from ..adapters.attack import LIBRARIES

    for name in libraries or []:
        if name not in LIBRARIES:
            raise UnknownName("library", name, LIBRARIES)
    rows = list(IMPLEMENTATIONS.values()) if attack is None else implementations_of(attack)
    chosen = [row for row in rows if (not libraries or row.library in libraries) and (repaired or not row.variant)]
    if not chosen:
        have = ", ".join(dict.fromkeys(row.library for row in rows))
        raise InvalidInput(f"expected a library that has {attack} ({have}), got {', '.join(libraries or [])}")
    order = {name: place for place, name in enumerate(dict.fromkeys(row.attack for row in rows))}
    return sorted(chosen, key=lambda row: order[row.attack])


def read_parameters(options: dict[str, Any], texts: list[str]) -> dict[str, Any]:
    """Canonical parameters from options that were given and from texts `name=value`."""
    from ..engine.config import parse_text, read_parameter

    given = {
        name: parse_text(name, value) if isinstance(value, str) else read_parameter(name, value)
        for name, value in options.items()
        if value is not None
    }
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidInput(f"expected --param name=value, got {text!r}")
        given[name] = parse_text(name, value)
    return given
