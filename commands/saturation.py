"""Command that finds the saturation radius of an attack."""

import json
from typing import Annotated, Any

import typer

from ..report.text.progress import show_progress
from .config_options import Given
from .input_options import InputOptions
from .loading import LOADING, loading_keywords, tell
from .options import (
    Data,
    Json,
    Latex,
    LatexWords,
    Libraries,
    Model,
    latex_style,
    one_format,
    read_parameters,
    say_defaults,
    split_list,
)
from .table_options import TableOptions


def find_saturation(
    *,
    context: typer.Context,
    attack: Annotated[str, typer.Argument(help="a fixed-budget attack from `davylamp attacks`: pgd, foolbox:pgd")],
    model: Model = "demo:efficientnet-lite0",
    seen: InputOptions,
    data: Data = "demo:imagenet",
    limit: Annotated[int | None, typer.Option(min=1, help="use at most this many images")] = None,
    norm: Annotated[str | None, typer.Option(help="norm: linf, l2, l1 or l0 (default: the attack's first)")] = None,
    epsilon: Annotated[
        list[str] | None,
        typer.Option(
            "--epsilon",
            "--eps",
            "--budget",
            help="radius to try: 4/255 (repeatable; default: 9 radii around the usual one)",
        ),
    ] = None,
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help="success rates that differ by less count as equal")
    ] = 0.01,
    param: Annotated[list[str] | None, typer.Option(help="parameter name=value (repeatable)")] = None,
    library: Libraries = None,
    fixed: Annotated[bool, typer.Option("--fixed", help="include the fixed variants, `@fixed`")] = False,
    seed: Annotated[int, typer.Option(min=0, help="random seed")] = 0,
    device: Annotated[str, typer.Option(help="device: cpu, cuda, cuda:1, mps")] = "cpu",
    how: Annotated[Given, LOADING],
    view: TableOptions,
    as_latex: Latex = False,
    latex_words: LatexWords = None,
    as_json: Json = False,
) -> None:
    """Find the radius of an attack beyond which it fools hardly any further images (CANARY, 3.2.1), by library."""
    from ..api.measuring import saturation

    form, style = one_format({"latex": as_latex, "json": as_json}), latex_style(latex_words)
    view.check(form)
    loading, name = loading_keywords(how), seen.of(model)
    radii = {"norm": norm, "epsilon": split_list("--epsilon", epsilon), "threshold": threshold}
    among = {"libraries": split_list("--library", library) or (), "fixed": fixed}
    where = {"data": data, "limit": limit, "seed": seed, "device": device, "progress": show_progress}
    parameters = read_parameters({}, param or [], [attack])
    done = saturation(attack, name, parameters=parameters, **radii, **among, **where, **loading)  # type: ignore[arg-type]
    say_defaults(context, ("model", "data", "threshold", "seed"))
    for note in (*done.document["notes"], *done.notes):
        tell(note)
    if form == "latex":
        from ..report.text.latex_documents import saturation_latex

        print(saturation_latex(attack, name, data, done.document["norm"], done.rows, style), end="")  # noqa: T201
    elif form == "json":
        print(json.dumps(done.to_dict(), indent=2))  # noqa: T201 - the product
    else:
        with view.open() as console:
            _print(done, f"{attack} on {name}, {data}", console)


def _print(done: Any, title: str, console: Any) -> None:
    from ..adapters.display_text import format_radius
    from ..engine import proportion_interval
    from ..report.text.console import print_notes, print_table

    norm, lines, notes = done.document["norm"], done.rows, []
    for line in lines:
        if line["epsilon"] is None:
            why = "no image was fooled" if not any(line["ratios"]) else "success still grows at the largest radius"
            notes.append(f"{line['implementation']}: no saturation radius: {why}")
        counts = zip(line["budgets"], line["violations"], strict=True)
        if where := ", ".join(f"{count} at {format_radius(norm, budget)}" for budget, count in counts if count):
            notes.append(f"{line['implementation']}: invalid results count as not fooled: {where}")
    print_notes(notes, console)
    columns = ("implementation", "n", "at", *(format_radius(norm, budget) for budget in lines[0]["budgets"]))
    rows = []
    for line in lines:
        at = "-" if line["epsilon"] is None else format_radius(norm, line["epsilon"])
        rows.append([line["implementation"], line["attacked"], at, *(f"{ratio:.3f}" for ratio in line["ratios"])])
    print_table(f"{title}: fooling rate at each {norm} radius", columns, rows, console, rest="stack")
    n = lines[0]["attacked"]
    low, high = proportion_interval(n, n)
    console.print(f"with {n} images a rate of 1 has a 95 % interval of {low:.2f} to {high:.2f}")
    saturated = ", ".join(f"{name} {at}" for name, _, at, *_ in rows if at != "-")
    console.print(
        f"at saturation, the smallest radius within the threshold of the highest rate: {saturated or 'none was found'}"
    )
