"""Figures of a results folder by name, and their files."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...engine.store.results import Results, as_results
from ...engine.tables.budget_curves import build_curves
from ...engine.tables.distance_curves import build_distance_curves
from ...engine.tables.table import build_table
from ...engine.tables.transfer_table import build_transfer
from ...errors import DavylampError, InvalidInput, UnknownName, Unsupported
from .canvas import drawing, read_width, write_figure
from .drawn_curves import draw_accuracy, draw_passes
from .drawn_ranking import draw_ranking
from .drawn_rates import draw_rates
from .drawn_transfer import draw_transfer

Folder = str | Path


def figure(
    folder: Folder,
    kind: str = "rates",
    *,
    width: str = "column",
    style: str = "sans",
    norm: str | None = None,
    models: list[str] | None = None,
    subjects: str = "models",
) -> Any:
    """Draw a figure of a results folder, at the width of a paper's column.

    Args:
        folder: results folder.
        kind: "accuracy" against the radius, "passes" against the median distance, "rates" of each attack and library,
            "ranking", or "transfer" between models.
        width: "column" (3.25 in), "text" (6.75 in), or a length: "3.25in", "8.5cm", "246pt".
        style: "sans" or "serif".
        norm: norm of the results, for accuracy, passes, rates and ranking; None for all norms.
        models: names of models, for accuracy and passes; empty for all models.
        subjects: subjects of the ranking: "models", "attacks", "implementations", "defences".

    Returns:
        A Matplotlib figure, to be saved with `savefig` or `write_figure`.

    Raises:
        UnknownName: If there is no such kind, style or model.
        InvalidInput: If the width is invalid.
        Unsupported: If the folder has no results for this figure.
        MissingLibrary: If Matplotlib is not installed.
    """
    if kind not in KINDS:
        raise UnknownName("figure", kind, KINDS)
    inches = read_width(width)
    with drawing(style) as make:
        return KINDS[kind](make, inches, folder, {"norm": norm, "models": models, "subjects": subjects})


def write_figures(
    folder: Folder, kinds: list[str], path: Path, **options: Any
) -> tuple[list[Path], dict[str, DavylampError]]:
    """Write figures: one kind to PATH, several kinds to NAME-KIND.pdf. Without kinds, write all possible figures.

    Args:
        folder: results folder.
        kinds: names from `KINDS`; empty for all kinds for which the folder has results.
        path: file whose suffix selects the format.
        **options: options of `figure`.

    Returns:
        The files, and the error for each kind that was skipped because the folder has no results for it.

    Raises:
        DavylampError: As `figure`. Unsupported if no figure can be drawn.
    """
    written, missing = [], {}
    for kind in kinds or KINDS:
        try:
            drawn = figure(folder, kind, **options)
        except (UnknownName, InvalidInput, Unsupported) as error:
            if kinds:
                raise
            missing[kind] = error
            continue
        name = path if len(kinds) == 1 else path.with_name(f"{path.stem}-{kind}{path.suffix}")
        written.append(write_figure(drawn, name))
    if not written:
        raise Unsupported(f"no figure can be drawn from these results: {next(iter(missing.values()))}")
    return written, missing


def _accuracy(make: type, width: float, folder: Folder, chosen: Mapping[str, Any]) -> Any:
    return draw_accuracy(make, width, build_curves(folder, norm=chosen["norm"], models=chosen["models"]))


def _passes(make: type, width: float, folder: Folder, chosen: Mapping[str, Any]) -> Any:
    return draw_passes(make, width, build_distance_curves(folder, norm=chosen["norm"], models=chosen["models"]))


def _rates(make: type, width: float, folder: Folder, chosen: Mapping[str, Any]) -> Any:
    table = build_table(folder, metrics=["MR"])
    rows = [row for row in table.rows if chosen["norm"] in (None, row.labels["norm"])]
    return draw_rates(make, width, type(table)(table.by, table.labels, table.symbols, tuple(rows), table.findings))


def _ranking(make: type, width: float, folder: Folder, chosen: Mapping[str, Any]) -> Any:
    from ...engine.store.data_frames import load_outcomes
    from ...scoring import choose_results, rank_results

    try:
        results = choose_results(load_outcomes(folder), chosen["norm"], None)
        return draw_ranking(make, width, rank_results(results, chosen["subjects"])[0])
    except ValueError as error:
        raise InvalidInput(str(error)) from error


def _transfer(make: type, width: float, folder: Folder, _: Mapping[str, Any]) -> Any:
    outcomes: Results = as_results(folder, ("OTR",))
    tables = build_transfer(outcomes).tables
    if not tables:
        raise Unsupported("no transfer results; run `davylamp evaluate` with --transfer full")
    return draw_transfer(make, width, tables[0])


KINDS: Mapping[str, Callable[[type, float, Folder, Mapping[str, Any]], Any]] = {
    "accuracy": _accuracy,
    "passes": _passes,
    "rates": _rates,
    "ranking": _ranking,
    "transfer": _transfer,
}
