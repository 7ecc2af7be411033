"""The command that finds the budget at which an attack is to be evaluated: where its success stops growing."""

import json
from functools import partial
from typing import Annotated, Any

import typer

from ..errors import DavylampError, InvalidInput, Unsupported
from .config_options import Given
from .input_options import InputOptions
from .loading import LOADING, loading_from, say_traffic, settle_attacks
from .options import (
    Data,
    Json,
    Latex,
    LatexWords,
    Libraries,
    Model,
    choose_rows,
    latex_style,
    one_format,
    read_parameters,
    say_defaults,
    split_list,
)
from .progress import show_progress
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
            help="radius to try: 4/255 (repeatable; default: 9 around the customary one)",
        ),
    ] = None,
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help="success rates that differ by less count as equal")
    ] = 0.01,
    param: Annotated[list[str] | None, typer.Option(help="parameter name=value (repeatable)")] = None,
    library: Libraries = None,
    repaired: Annotated[bool, typer.Option("--repaired", help="include repaired versions")] = False,
    seed: Annotated[int, typer.Option(min=0, help="random seed")] = 0,
    device: Annotated[str, typer.Option(help="device: cpu, cuda, cuda:1, mps")] = "cpu",
    how: Annotated[Given, LOADING],
    view: TableOptions,
    as_latex: Latex = False,
    latex_words: LatexWords = None,
    as_json: Json = False,
) -> None:
    """Find the smallest radius beyond which an attack fools no more images (CANARY, 3.2.1), by library."""
    from ..adapters import attack_of
    from ..adapters.data.datasets import load_data_for
    from ..adapters.parameters import parse_number
    from ..adapters.running.access import check_any_access

    form, style = one_format({"latex": as_latex, "json": as_json}), latex_style(latex_words)
    view.check(form)
    settle_attacks(how)
    given = read_parameters({}, param or [], [attack])
    radii = [parse_number(text, "epsilon") for text in split_list("--epsilon", epsilon) or []] or None
    rows = choose_rows(attack, split_list("--library", library), repaired=repaired)
    norm = norm or next(iter(rows[0].classes))
    rows = [row for row in rows if norm in row.classes]
    if not rows:
        raise InvalidInput(f"expected a norm that {attack} has, got {norm}")
    if all(attack_of(row).kind != "fixed-budget" for row in rows):
        raise Unsupported(f"{attack} looks for the smallest change by itself: it has no budget to choose")
    model = seen.of(model)
    classifier = loading_from(how, [model]).load(model, device)
    images = load_data_for(classifier, data, limit)
    check_any_access(rows, classifier, images.inputs, norm=norm)
    settings = {"budgets": radii, "threshold": threshold, "seed": seed}
    lines, failed = [], {}
    with show_progress(len(rows) * (len(radii) if radii else 9) * len(images.labels)) as progress:
        for row in rows:
            done = partial(progress, row.name)
            try:
                lines.append(_line(row, classifier, images, norm, given, {**settings, "progress": done}))
            except DavylampError as error:
                failed[row.name] = str(error)
    if not lines:
        raise Unsupported("; ".join(dict.fromkeys(failed.values())))
    say_traffic([classifier])
    say_defaults(context, ("model", "data", "threshold", "seed"))
    if form == "latex":
        from ..report.text.latex_documents import saturation_latex

        print(saturation_latex(attack, model, data, norm, lines, style), end="")  # noqa: T201 - the product
    elif form == "json":
        print(json.dumps({"norm": norm, "rows": lines, "failed": failed}, indent=2))  # noqa: T201 - the product
    else:
        with view.open() as console:
            _print(f"{attack} on {model}, {data}", norm, lines, failed, console)


def _line(
    row: Any, classifier: Any, images: Any, norm: Any, given: dict[str, Any], settings: dict[str, Any]
) -> dict[str, Any]:
    """One implementation at every budget."""
    from ..adapters import attack_of
    from ..adapters.catalogue.lookup import accepts
    from ..engine import saturating_budget

    matched = {name: value for name, value in attack_of(row).matched.items() if accepts(row, name)}
    saturation = saturating_budget(
        row, classifier, images.inputs, images.labels, norm, **settings, **{**matched, **given}
    )
    return {"implementation": row.name, **saturation._asdict()}


def _print(title: str, norm: str, lines: list[dict[str, Any]], failed: dict[str, str], console: Any) -> None:
    from ..adapters.words import radius_text
    from ..engine import share_interval
    from ..report.text.console import print_notes, print_table

    notes = []
    for line in lines:
        if line["epsilon"] is None:
            why = "nothing was fooled" if not any(line["ratios"]) else "it still grows at the largest radius"
            notes.append(f"{line['implementation']}: no budget: {why}")
        counts = zip(line["budgets"], line["violations"], strict=True)
        if where := ", ".join(f"{count} at {radius_text(norm, budget)}" for budget, count in counts if count):
            notes.append(f"{line['implementation']}: results that prove nothing count as not fooled: {where}")
    print_notes([*notes, *(f"left out: {name}: {reason}" for name, reason in failed.items())], console)
    columns = ("implementation", "n", "at", *(radius_text(norm, budget) for budget in lines[0]["budgets"]))
    rows = []
    for line in lines:
        at = "-" if line["epsilon"] is None else radius_text(norm, line["epsilon"])
        rows.append([line["implementation"], line["attacked"], at, *(f"{ratio:.3f}" for ratio in line["ratios"])])
    print_table(f"{title}: share fooled at each {norm} radius", columns, rows, console, rest="stack")
    n = lines[0]["attacked"]
    low, high = share_interval(n, n)
    console.print(f"with {n} images a share of 1 is {low:.2f} to {high:.2f}")
    saturated = ", ".join(f"{name} {at}" for name, _, at, *_ in rows if at != "-")
    console.print(f"at: the smallest radius that loses nothing against the best one: {saturated or 'none was found'}")
