"""Command that ranks models, attacks or implementations in a results folder or a table of metrics."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ..errors import InvalidInput
from .config_options import Keyword, in_options, keywords_of
from .merge import open_named
from .options import (
    Json,
    Knowledge,
    Latex,
    LatexWords,
    given_options,
    latex_style,
    one_format,
    say_defaults,
    versions_of,
)
from .table_options import TableOptions


@dataclass(frozen=True)
class RankOptions:
    """Options that choose what to rank, the baseline and the scoring method."""

    against: Annotated[
        str | None,
        typer.Option(help="place new subjects among those of a folder, bundle, CSV or published:canary-table9"),
    ] = None
    adaptive: Annotated[
        bool, typer.Option("--adaptive", help="--against: also find the number of images that is enough")
    ] = False
    max_rank_width: Annotated[
        int | None, typer.Option(min=0, help="--adaptive: stop when the rank interval is at most this wide")
    ] = None
    batch_images: Annotated[int, typer.Option(min=1, help="--adaptive: images per batch")] = 8
    subjects: Annotated[
        Literal["models", "attacks", "implementations", "defences"], typer.Option(help="what to rank")
    ] = "models"
    method: Annotated[
        Literal["irt", "canary", "mean", "borda"],
        typer.Option(help="irt: from responses to each image; canary: from metrics, as published"),
        Keyword("scoring"),
    ] = "irt"
    item_model: Annotated[
        Literal["auto", "1pl", "2pl", "3pl"],
        typer.Option("--item-model", "--model", help="auto: 1pl below 10 subjects, else 2pl"),
        Keyword("model"),
    ] = "auto"
    fit: Annotated[
        Literal["auto", "fast", "svi", "nuts"],
        typer.Option(help="svi: approximation for large data; nuts: slow reference"),
        Keyword("method"),
    ] = "auto"
    norm: Annotated[str | None, typer.Option(help="only results in this norm")] = None
    epsilon: Annotated[
        str | None,
        typer.Option("--epsilon", "--eps", "--budget", help="count an image as fooled only up to this distance: 4/255"),
        Keyword("budget"),
    ] = None
    knowledge: Annotated[Knowledge | None, typer.Option(help="only attacks with this knowledge of the model")] = None
    per: Annotated[
        Literal["attack", "implementation"],
        typer.Option(help="one item per attack (the strongest of its libraries) or per implementation"),
    ] = "attack"
    unequal: Annotated[
        Literal["common", "keep"],
        typer.Option(help="if a subject has no result for an item: omit the item, or treat the result as missing"),
    ] = "common"
    original: Annotated[str | None, typer.Option(help="for defences, the undefended model")] = None
    examples: Annotated[
        Literal["defended", "original"] | None,
        typer.Option(
            help="defences: examples made on the defended model or on the original (default: defended if any)"
        ),
    ] = None
    library: Annotated[
        str | None, typer.Option(help="show images on which this library is better or worse than its ability predicts")
    ] = None
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="rank again without each subject and each metric")
    ] = False
    stability: Annotated[
        bool, typer.Option("--stability", help="rank again with a quarter and a half of the images")
    ] = False
    propagate: Annotated[bool, typer.Option("--propagate", help="canary: propagate the uncertainty of both layers")] = (
        False
    )
    curve: Annotated[
        Literal["intercept", "paper"],
        typer.Option(help="canary: the 3PL curve of the published program, or that of the paper, with D = 1.702"),
    ] = "intercept"
    uncapped: Annotated[
        bool, typer.Option("--uncapped", help="canary: do not limit large values as the published program does")
    ] = False
    seed: Annotated[int, typer.Option(min=0, help="random seed")] = 0


def rank_subjects(
    *,
    context: typer.Context,
    results: Annotated[
        list[Path],
        typer.Argument(
            help="results folders or BUNDLE.zip, several are read as one; or a CSV table of CANARY's metrics with "
            "names in the first column"
        ),
    ],
    options: RankOptions,
    items: Annotated[int, typer.Option(min=0, help="number of hardest and easiest images to show")] = 3,
    view: TableOptions,
    as_csv: Annotated[bool, typer.Option("--csv", help="print CSV")] = False,
    as_latex: Latex = False,
    latex_words: LatexWords = None,
    as_json: Json = False,
) -> None:
    """Rank models, attacks or implementations, and show their abilities, rank intervals and tie groups."""
    from ..api.rankings import rank_in_detail
    from ..report.text.ranking import rankings_document, rankings_frame

    form, style = one_format({"csv": as_csv, "latex": as_latex, "json": as_json}), latex_style(latex_words)
    view.check(form)
    given = given_options(context)
    unprinted = ", ".join(f"--{name}" for name in ("library", "sensitivity", "items") if name in given)
    if as_csv and unprinted:
        raise InvalidInput(
            f"{unprinted} cannot be combined with --csv, which contains the ranking only; use --json or a table"
        )
    if as_latex and options.against is not None:
        raise InvalidInput("--against and --latex cannot be combined")
    folder, against, titles = open_named(context, results, options.against)
    asked = keywords_of(replace(options, against=against), given)
    details: dict[str, Any] = {
        name: asked.pop(name) for name in ("library", "sensitivity", "stability") if name in asked
    }
    details |= {"items": items} if "items" in given else {}
    every = [shown.reworded(in_options) for shown in rank_in_detail(folder, asked, **details)]
    every = [replace(shown, title=titles(shown.title)) for shown in every]
    _say_defaults(context, options, folder)
    if form == "latex":
        from ..report.text.latex_documents import ranking_latex

        versions = {} if folder.suffix == ".csv" else versions_of(folder)
        tables = [ranking_latex(shown.ranking, shown.title, versions, style) for shown in every]
        print("\n".join(tables), end="")  # noqa: T201 - standard output is the product
    elif form == "json":
        print(json.dumps(rankings_document(every), indent=1, allow_nan=False))  # noqa: T201 - the product
    elif form == "csv":
        from ..report.text.console import frame_csv, print_error

        print(frame_csv(rankings_frame(every)), end="")  # noqa: T201
        for note in dict.fromkeys(note for shown in every for note in shown.lines):
            print_error(f"- {note}")
    else:
        with view.open() as console:
            for shown in every:
                shown.print(items if view.verbose or "items" in given else 0, console)


def _say_defaults(context: typer.Context, options: RankOptions, folder: Path) -> None:
    of_table, of_canary = folder.suffix == ".csv", options.method == "canary"
    each = options.subjects == "implementations" or (options.subjects == "defences" and of_canary)
    unused = {"method", "per"} if of_table else {"per"} if each else set[str]()
    say_defaults(context, [name for name in ("subjects", "method", "per", "seed") if name not in unused])
