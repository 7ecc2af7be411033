"""Commands for attacks: list the catalogue, and compare libraries."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ..engine.plan.config import AttackChoice
from ..errors import UnknownName
from ..report.text.progress import show_runs
from .config_options import FromConfig, Given
from .input_options import InputOptions
from .loading import LOADING, loading_keywords
from .options import (
    Data,
    Json,
    Latex,
    LatexWords,
    Libraries,
    Model,
    all_failed,
    check_file,
    choose_rows,
    latex_style,
    one_format,
    read_parameters,
    say_defaults,
    split_list,
)
from .table_options import TableOptions


def list_attacks(
    *,
    attack: Annotated[str | None, typer.Argument(help="show this attack, with its parameters")] = None,
    library: Libraries = None,
    view: TableOptions,
    as_json: Json = False,
) -> None:
    """List attacks and the libraries that have them. With ATTACK, show its parameters and known issues by library."""
    from ..report.text.catalogue import SHORT, catalogue_json, print_attacks, print_catalogue

    view.check("json" if as_json else "")
    libraries = split_list("--library", library)
    if attack is None and not as_json and not view.wide and {*view.chosen} <= {*SHORT}:
        with view.open() as console:
            print_attacks(_list_attacks(libraries), console)
        _say_refused()
        return
    from ..adapters.catalogue.known_issues import FINDINGS
    from ..adapters.catalogue.lookup import describe_implementation
    from ..adapters.parameters import PARAMETERS

    chosen = choose_rows(attack, libraries, fixed=True)
    rows = [describe_implementation(row) for row in chosen]
    if as_json:
        print(catalogue_json(rows))  # noqa: T201 - standard output is the product
    else:
        known = {**PARAMETERS, **{name: parameter for row in chosen for name, parameter in row.more.items()}}
        meanings = {name: parameter.meaning for name, parameter in known.items()}
        with view.open() as console:
            print_catalogue(rows, FINDINGS, meanings, console)
    _say_refused()


def _list_attacks(libraries: list[str] | None) -> list[dict[str, Any]]:
    from ..adapters.catalogue.assemble import catalogue

    known_libraries = catalogue().libraries
    for name in libraries or []:
        if name not in known_libraries:
            raise UnknownName("library", name, known_libraries)
    listed: dict[str, dict[str, Any]] = {}
    for row in catalogue().implementations.values():
        if libraries and row.library not in libraries:
            continue
        attack = catalogue().attacks[row.attack]
        known = {"attack": row.attack, "title": attack.title, "knowledge": attack.knowledge, "kind": attack.kind}
        record = listed.setdefault(row.attack, {**known, "norms": [], "libraries": []})
        record["norms"] += [norm for norm in row.classes if norm not in record["norms"]]
        record["libraries"] += [row.library] if row.library not in record["libraries"] else []
    return list(listed.values())


def _say_refused() -> None:
    from ..adapters.catalogue.assemble import catalogue
    from ..report.text.console import print_error

    for name, reason in catalogue().refused.items():
        print_error(f"the library {name} is omitted: {reason}")


@dataclass(frozen=True)
class ParameterOptions:
    """Options for the most frequently used parameters of an attack."""

    steps: Annotated[int | None, typer.Option(rich_help_panel="Attacks", help="number of iterations")] = None
    step_size: Annotated[str | None, typer.Option(rich_help_panel="Attacks", help="step size, such as 1/255")] = None
    random_start: Annotated[
        bool | None, typer.Option(rich_help_panel="Attacks", help="start at a random point within the radius")
    ] = None
    restarts: Annotated[int | None, typer.Option(rich_help_panel="Attacks", help="number of independent runs")] = None
    confidence: Annotated[
        float | None,
        typer.Option(
            rich_help_panel="Attacks", help="how much the largest wrong logit must exceed the logit of the true class"
        ),
    ] = None


def compare_libraries(
    *,
    context: typer.Context,
    attack: Annotated[str, typer.Argument(help="an attack from `davylamp attacks`, FILE.py:ATTACK, or best(pgd)")],
    model: Model = "demo:efficientnet-lite0",
    seen: InputOptions,
    data: Data = "demo:imagenet",
    on: Annotated[Given, FromConfig(("limit",))],
    threat: Annotated[Given, FromConfig(("norm", "epsilon", "target", "parameters"), AttackChoice)],
    words: ParameterOptions,
    also: Annotated[
        list[str] | None,
        typer.Option("--also", help="attack to add to the comparison: FILE.py:ATTACK, best(foolbox:pgd) (repeatable)"),
    ] = None,
    among: Annotated[Given, FromConfig(("libraries", "fixed", "max_queries"))],
    seed: Annotated[int, typer.Option(help="random seed")] = 0,
    device: Annotated[str, typer.Option(help="device: cpu, cuda, cuda:1, mps")] = "cpu",
    batch: Annotated[Given, FromConfig(("batch_size", "precision", "judge_samples", "eot"))],
    how: Annotated[Given, LOADING],
    defaults: Annotated[bool, typer.Option("--defaults", help="use each library's default parameters")] = False,
    view: TableOptions,
    as_csv: Annotated[bool, typer.Option("--csv", help="print CSV")] = False,
    as_latex: Latex = False,
    latex_words: LatexWords = None,
    as_json: Json = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="also write the comparison to this file: .json, .csv or .tex"),
    ] = None,
) -> None:
    """Run one attack through every library that implements it, with matched parameters, and compare each pair."""
    from ..api.verbs import compare

    form, style = one_format({"csv": as_csv, "latex": as_latex, "json": as_json}), latex_style(latex_words)
    view.check(form)
    check_file(out, _SUFFIXES)
    loading, also = loading_keywords(how), split_list("--also", also) or []
    parameters = read_parameters(vars(words), threat.pop("parameters", []), [attack, *also])
    where = {"data": data, "seed": seed, "device": device, "loading": loading, "progress": show_runs}
    given = {**on, **threat, **among, **batch, **parameters}
    try:
        done = compare(attack, seen.of(model), also=also, defaults=defaults, **where, **given)
    except KeyboardInterrupt as interrupt:
        for finished in interrupt.args:
            _print_in(form, replace(finished, data=data), style, view, out)
        raise
    say_defaults(context, ("model", "data", "seed", "device"))
    _print_in(form, done, style, view, out)
    if all_failed([row.error for row in done.rows if row.error], len(done.rows), "implementations"):
        raise typer.Exit(1)


_SUFFIXES = {".json": "json", ".csv": "csv", ".tex": "latex"}


def _print_in(form: str, comparison: Any, style: Any, view: TableOptions, out: Path | None) -> None:
    from ..engine.store.atomic_files import write_atomic
    from ..report.text.comparison import print_comparison

    if form:
        print(_text_in(form, comparison, style), end="")  # noqa: T201 - standard output is the product
    else:
        with view.open() as console:
            print_comparison(comparison, console)
    if out is not None:
        write_atomic(out, _text_in(_SUFFIXES[out.suffix.lower()], comparison, style))


def _text_in(form: str, comparison: Any, style: Any) -> str:
    from ..report.text.comparison import comparison_csv, comparison_json
    from ..report.text.latex_comparison import comparison_latex

    if form == "latex":
        return comparison_latex(comparison, style)
    return comparison_csv(comparison) if form == "csv" else f"{comparison_json(comparison)}\n"
