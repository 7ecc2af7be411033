"""Options that several commands share, and functions that convert their values."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import typer

from ..errors import InvalidInput

OUTPUT = "Output"  # panel of the help

Model = Annotated[
    str,
    typer.Option(
        help="demo:efficientnet-lite0, WEIGHTS.pth+torchvision:NAME, torchvision:NAME, timm:NAME, "
        "hf:ORG/NAME, onnx:FILE, FILE.py:FACTORY, http://HOST/v2/models/NAME",
    ),
]
Data = Annotated[
    str,
    typer.Option(
        help="demo:imagenet, demo:tiny-imagenet, demo:cifar10, demo:mnist, imagefolder:PATH, npz:PATH, "
        "torchvision:cifar10, hf:ORG/NAME",
    ),
]
Libraries = Annotated[list[str] | None, typer.Option("--library", "--libraries", help="only this library (repeatable)")]
Epsilon = Annotated[str | None, typer.Option("--epsilon", "--eps", help="radius, for pixels in [0, 1]: 4/255")]
Latex = Annotated[
    bool, typer.Option("--latex", rich_help_panel=OUTPUT, help="print a LaTeX table (booktabs) with caption")
]
LatexWords = Annotated[
    str | None,
    typer.Option(
        "--latex-style",
        rich_help_panel=OUTPUT,
        help="form of the intervals: brackets, subscript, plus-minus or plain; with cite, add \\cite: subscript,cite",
    ),
]
Json = Annotated[bool, typer.Option("--json", rich_help_panel=OUTPUT, help="print one JSON document")]


# Attacker knowledge; black-box: score, decision, or transfer from a surrogate.
Knowledge = Literal["white-box", "black-box", "score", "decision", "transfer"]
_SETTING = re.compile(r"[a-z_]+=")
_COMMA = re.compile(r",(?![^()]*\))")  # not inside best(...)


def split_list(option: str, values: Sequence[str] | None) -> list[str] | None:
    """Split the values of a repeatable option at commas, such as "pgd,fgsm". None if the option was not given.

    Raises:
        InvalidInput: if there is no text between two commas.
    """
    if not values:
        return None
    pieces = [piece.strip() for value in values for piece in _COMMA.split(value)]
    if not all(pieces):
        raise InvalidInput(f"expected {option} A,B or {option} A {option} B, got {', '.join(map(repr, values))}")
    return pieces


def split_names(option: str, values: Sequence[str]) -> list[str]:
    """Split values at commas, except where a comma is part of a name.

    A comma is part of the name of an existing file ("FILE.py:NAME"). A comma before a setting is part of the name, too,
    as in "+jpeg:quality=50,gradients=none" or "boundary:directions=2,spacing=42".
    """
    names: list[str] = []
    for value in values:
        files = filter(None, (value, value.rpartition(":")[0]))
        pieces = [value] if any(Path(file).exists() for file in files) else split_list(option, [value]) or []
        for place, piece in enumerate(pieces):
            if place and _SETTING.match(piece):
                names[-1] += f",{piece}"
            else:
                names.append(piece)
    return names


def split_models(values: Sequence[str] | None) -> list[str] | None:
    """Split model names at commas, see `split_names`. None if there are no values."""
    return split_names("--models", values) if values else None


def latex_style(words: str | None) -> Any:
    """Convert the value of `--latex-style` to a style of LaTeX tables."""
    from ..report.text.latex import LatexStyle

    return LatexStyle.of(words)


def versions_of(folder: Path) -> dict[str, str]:
    """Return the versions of davylamp, torch and the attack libraries with which a folder's results were computed."""
    from ..adapters.catalogue.lookup import LIBRARIES
    from ..engine.store.plan_records import list_cells
    from ..report.citations.usage import libraries_of
    from ..report.sections.provenance import collect_versions

    states = list_cells(folder)
    ran = {LIBRARIES[name].distribution for name in libraries_of(states) if name in LIBRARIES}
    versions = collect_versions(states)
    return {name: version for name, version in versions.items() if name in {"davylamp", "torch", *ran}}


def read_whole(option: str, texts: Sequence[str] | None) -> list[int] | None:
    """Convert the values of an option to whole numbers. The range of the numbers is not checked."""
    numbers = []
    for text in split_list(option, texts) or []:
        if not re.fullmatch(r"[+-]?[0-9]{1,30}", text):
            raise InvalidInput(f"expected {option} as a whole number, got {text[:60]!r}")
        numbers.append(int(text))
    return numbers or None


def one_format(wanted: Mapping[str, bool]) -> str:
    """Return the output format that the user requested. "" if no format was requested.

    Raises:
        InvalidInput: if several formats were requested.
    """
    formats = [name for name, asked in wanted.items() if asked]
    if len(formats) > 1:
        raise InvalidInput(f"expected one format, got {' and '.join(f'--{name}' for name in formats)}")
    return formats[0] if formats else ""


def choose_rows(attack: str | None, libraries: list[str] | None, *, fixed: bool) -> list[Any]:
    """Return the implementations of an attack in the named libraries. If `attack` is None, those of all attacks."""
    from ..adapters import IMPLEMENTATIONS, find_implementation, implementations_of
    from ..adapters.catalogue.lookup import find_library
    from ..engine.plan.choices import no_library

    if attack is not None and ":" in attack:
        return [find_implementation(attack)]
    for name in libraries or []:
        find_library(name)
    rows = list(IMPLEMENTATIONS.values()) if attack is None else implementations_of(attack)
    chosen = [row for row in rows if (not libraries or row.library in libraries) and (fixed or not row.variant)]
    if not chosen:
        raise no_library(str(attack), rows, libraries or [])
    order = {name: place for place, name in enumerate(dict.fromkeys(row.attack for row in rows))}
    return sorted(chosen, key=lambda row: order[row.attack])


def read_parameters(options: dict[str, Any], texts: list[str], attacks: Sequence[str] = ()) -> dict[str, Any]:
    """Combine attack parameters that are given as options or as texts `name=value`.

    A name is that of a canonical parameter, or of a parameter of a user's attack among `attacks`.
    """
    from ..engine.plan.config_file import parameters_of, parse_text, read_parameter

    more = parameters_of(attacks)

    given = {
        name: parse_text(name, value, more) if isinstance(value, str) else read_parameter(name, value, more)
        for name, value in options.items()
        if value is not None
    }
    texts_of = split_settings(texts, given)
    return {**given, **{name: parse_text(name, text, more) for name, text in texts_of.items()}}


def split_settings(texts: Iterable[str], given: Mapping[str, Any] = MappingProxyType({})) -> dict[str, str]:
    """Parse texts `name=value` into a dict.

    Args:
        texts: values of `--param`.
        given: values of other options, which are added to the result.

    Raises:
        InvalidInput: if a text does not have this form, or a name is given twice.
    """
    settings: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value:
            raise InvalidInput(f"expected --param name=value, got {text!r}")
        if name in given or name in settings:
            before = given.get(name, settings.get(name))
            raise InvalidInput(
                f"expected one value of {name}, got {before} and {value}; several values need a TOML file"
            )
        settings[name] = value
    return settings


def given_options(context: typer.Context) -> set[str]:
    """Return the options that the user gave, by their names in the signature of the command's function."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name != "DEFAULT"}


def check_file(out: Path | None, suffixes: Collection[str]) -> None:
    """Check the path of an output file before anything is computed.

    Raises:
        InvalidInput: if the path ends with none of the `suffixes`, or the file's folder does not exist.
    """
    if out is not None and out.suffix.lower() not in suffixes:
        folder = "" if out.suffix else "; `davylamp evaluate` writes a results folder"
        raise InvalidInput(f"expected --out as a file that ends with {' or '.join(suffixes)}, got {out}{folder}")
    if out is not None and not out.parent.is_dir():
        raise InvalidInput(
            f"there is no folder {out.parent} for --out {out}; create it first or choose a different file"
        )


def say_defaults(context: typer.Context, names: Sequence[str]) -> None:
    """Print one line on standard error with the default values of those named options that the user did not give."""
    from ..report.text.console import print_error

    given = given_options(context)
    texts = [
        f"{name} {getattr(context.params[name], 'value', context.params[name])}" for name in names if name not in given
    ]
    if texts:
        print_error(f"chosen: {', '.join(texts)}")


def all_failed(reasons: Sequence[str], total: int, what: str) -> bool:
    """Return whether all implementations or runs of a command failed. If so, the most frequent reason is printed.

    Args:
        reasons: reason of each failure.
        total: number of implementations or runs.
        what: noun for the message, such as "implementations" or "runs".
    """
    from collections import Counter

    from ..report.text.console import print_error

    if not total or len(reasons) < total:
        return False
    reason, number = Counter(reasons).most_common(1)[0]
    often = f" ({number} of {total})" if number < total else ""
    print_error(f"davylamp: all {total} {what} failed{often}: {reason}" if total > 1 else f"davylamp: failed: {reason}")
    return True
