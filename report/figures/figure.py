"""Draws figures of a results folder by name, and writes their files."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...engine.store.results import Results, as_results
from ...engine.tables.budget_curves import build_curves
from ...engine.tables.distance_curves import build_distance_curves
from ...engine.tables.table import Table, build_table
from ...engine.tables.transfer_table import build_transfer
from ...errors import DavylampError, InvalidInput, UnknownName, Unsupported
from ...metrics import imagenet_wup
from ...metrics.confusion import PAPER_KS
from .canvas import drawing, read_width, write_figure
from .drawn_curves import draw_accuracy, draw_passes
from .drawn_extremes import draw_extremes
from .drawn_parameters import draw_parameters
from .drawn_ranking import draw_ranking
from .drawn_rates import draw_rates
from .drawn_similarities import draw_similarities, visual_similarity
from .drawn_transfer import draw_transfer

Folder = str | Path


def figure(  # noqa: PLR0913 - the noun by position, the choices by keyword
    folder: Folder,
    kind: str = "rates",
    *,
    width: str = "column",
    style: str = "sans",
    norm: str | None = None,
    models: list[str] | None = None,
    subjects: str = "models",
    metric: str = "MR",
) -> Any:
    """Draw a figure of a results folder for a paper.

    Args:
        folder: results folder.
        kind: kind of figure. "accuracy" is accuracy against the radius. "passes" is the median distance against the
            number of passes. "rates" is the fooling rate of each attack and library. "ranking" is a ranking with
            intervals. "transfer" is the rate of transfer between models. "fr-at-k" is the fooling rate against K.
            "thresholds" is QI_Wup against its threshold. "extremes" marks the attacks that fool each model most and
            least often. "similarities" is the similarity between classes by the last layers of the models and, for
            ImageNet, by WordNet (first senses).
        width: "column" (3.25 in), "text" (6.75 in), or a length such as "3.25in", "8.5cm" or "246pt".
        style: font of the figure: "sans" or "serif".
        norm: norm to show, for "accuracy", "passes", "rates" and "ranking". None means all norms.
        models: names of the models to show, for "accuracy", "passes", "fr-at-k", "thresholds", "extremes" and
            "similarities". For "rates", only a single model can be selected. None means all models.
        subjects: what "ranking" ranks: "models", "attacks", "implementations" or "defences".
        metric: symbol of the metric that "rates" shows instead of the fooling rate, such as "QI_Wup" or "ALMS".

    Returns:
        A Matplotlib figure. Save the figure with `savefig` or `write_figure`.

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
        return KINDS[kind](
            make, inches, folder, {"norm": norm, "models": models, "subjects": subjects, "metric": metric}
        )


def write_figures(
    folder: Folder, kinds: list[str], path: Path, **options: Any
) -> tuple[list[Path], dict[str, DavylampError]]:
    """Write figures of a results folder to files.

    Args:
        folder: results folder.
        kinds: names from `KINDS`. Empty means every kind in `USUAL` for which the folder has results.
        path: path of the file. The suffix selects the format. If `kinds` is not a single kind, the kind is added to the
            name: NAME-KIND.pdf.
        **options: further arguments of `figure`.

    Returns:
        The written files, and the error of each kind that was omitted because the folder has no results for it.

    Raises:
        DavylampError: If a requested figure cannot be drawn.
        Unsupported: If no figure can be drawn.
    """
    written, missing = [], {}
    for kind in kinds or USUAL:
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
    metric, models = chosen["metric"], chosen["models"] or []
    table = _shown(folder, chosen, [metric], by="pairs" if len(models) == 1 else "attacks")
    return draw_rates(make, width, table, table.symbols[0])


def _shown(folder: Folder, chosen: Mapping[str, Any], metrics: list[str], *, by: Any = "pairs") -> Table:
    """Return a table of metrics for only the selected models and norm.

    Raises:
        UnknownName: If there is no such model.
    """
    table = build_table(folder, by=by, metrics=metrics)
    if by == "pairs":
        have = {str(row.labels["model"]) for row in table.rows}
        for name in chosen["models"] or ():
            if name not in have:
                raise UnknownName("model", name, have)
    rows = [row for row in table.rows if chosen["norm"] in (None, row.labels["norm"])]
    rows = [row for row in rows if by != "pairs" or not chosen["models"] or row.labels["model"] in chosen["models"]]
    return replace(table, rows=tuple(rows))


def _fr_at_k(make: type, width: float, folder: Folder, chosen: Mapping[str, Any]) -> Any:
    symbols = {float(k): f"FR@{k}" for k in PAPER_KS}
    return draw_parameters(
        make, width, _shown(folder, chosen, list(symbols.values())), symbols, ("K", "fooling rate at K"), is_log=True
    )


def _thresholds(make: type, width: float, folder: Folder, chosen: Mapping[str, Any]) -> Any:
    symbols = {tenth / 10: f"QI_Wup@{tenth / 10:g}" for tenth in range(1, 10)}
    names = ("threshold of the Wu-Palmer similarity", "QI-Wup")
    return draw_parameters(make, width, _shown(folder, chosen, list(symbols.values())), symbols, names)


def _extremes(make: type, width: float, folder: Folder, chosen: Mapping[str, Any]) -> Any:
    return draw_extremes(make, width, _shown(folder, chosen, ["MR"]))


def _similarities(make: type, width: float, folder: Folder, chosen: Mapping[str, Any]) -> Any:
    known = {each.subject.name: each for each in as_results(folder).clean.values()}
    for name in chosen["models"] or ():
        if name not in known:
            raise UnknownName("model", name, known)
    drawn = {name: known[name] for name in chosen["models"] or known}
    matrices = {name: visual_similarity(clean) for name, clean in drawn.items()}
    if 1000 in map(len, matrices.values()):
        matrices["Wu and Palmer"] = imagenet_wup("first")
    return draw_similarities(make, width, matrices)


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
        raise Unsupported("no transfer results; evaluate with `transfer='full'`")
    return draw_transfer(make, width, tables[0])


KINDS: Mapping[str, Callable[[type, float, Folder, Mapping[str, Any]], Any]] = {
    "accuracy": _accuracy,
    "passes": _passes,
    "rates": _rates,
    "ranking": _ranking,
    "transfer": _transfer,
    "fr-at-k": _fr_at_k,
    "thresholds": _thresholds,
    "extremes": _extremes,
    "similarities": _similarities,
}
USUAL = ("accuracy", "passes", "rates", "ranking", "transfer")
