"""Rows of a table by classes: rates of a model over the images of each true class, with simultaneous intervals."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...intervals import LEVEL
from ..finding import Finding, note
from ..statistics.bootstrap import Estimate
from ..store.class_names import class_names
from ..store.results import Results
from .estimates import estimate_share, row_values
from .groups import TableGroup, ThreatUnion
from .symbols import is_union

Row = tuple[dict[str, Any], dict[str, Estimate]]


def build_class_rows(
    group: TableGroup, outcomes: Results, symbols: Sequence[str], union: ThreatUnion | None, *, has_intervals: bool
) -> list[Row]:
    """Return the labels and estimates of a table row for each true class, for one model under one threat model.

    The intervals of a metric hold for all classes together at 95 % (Bonferroni). The label `lowest` names the metrics
    that have their lowest value for the class of the row.

    There are no intervals for an evaluation that drew random images until a question was decided. Such intervals would
    need the number of images of each class in the whole data, which is unknown.

    Args:
        group: row of a table by models. If the row has no finished runs, the result is empty.
        outcomes: results of the row's folder.
        symbols: metrics for which `has_outcome` is True.
        union: union of the folder's threat models, for RA_union. None if RA_union is not in the table.
        has_intervals: whether to compute intervals.
    """
    if not group.parts:
        return []
    subject, true = group.outcomes[0].cell.subject, group.outcomes[0].columns["label"]
    names = class_names(outcomes.clean.get(subject.key))
    classes = np.unique(true)
    kept = {name: value for name, value in group.labels.items() if name not in ("model", "images", "violations")}
    kept.pop("cells")  # an image counts once, whatever the number of runs
    estimates: dict[str, list[Estimate]] = {}
    for symbol in symbols:
        whole = union.row_of(group) if union is not None and is_union(symbol) else group
        runs = [] if whole is None else whole.parts
        values, most = (
            [each for part in row_values(runs, outcomes, symbol, of_model=True, at_most=end) for each in part]
            for end in (False, True)
        )
        estimates[symbol] = [
            estimate_share(
                *([[each[true == one] for each in images]] for images in (values, most)),
                has_interval=has_intervals and subject.population is None,
                level=1 - (1 - LEVEL) / len(classes),
            )
            for one in classes
        ]
    least = {symbol: min(each.value for each in column) for symbol, column in estimates.items()}
    differ = [symbol for symbol, column in estimates.items() if any(each.value > least[symbol] for each in column)]
    violated = np.sum([each.results.violated for each in group.outcomes], axis=0)
    rows: list[Row] = []
    for place, one in enumerate(classes):
        metrics = {symbol: column[place] for symbol, column in estimates.items()}
        labels = {"model": group.labels["model"], "class": int(one), "class name": names[one] if names else "", **kept}
        labels["lowest"] = ", ".join(symbol for symbol in differ if metrics[symbol].value == least[symbol])
        labels |= {"images": int((true == one).sum()), "violations": int(violated[true == one].sum())}
        rows.append((labels, metrics))
    return rows


def simultaneous_notes(groups: Sequence[TableGroup]) -> Iterator[Finding]:
    """Yield notes on the level of the intervals, and on models without intervals."""
    runs = [group.outcomes[0] for group in groups if group.parts]
    if drawn := dict.fromkeys(each.cell.subject.name for each in runs if each.cell.subject.drawn):
        sentence = "no intervals of classes for {models}: images were drawn until a question was decided"
        yield note("no-class-intervals", sentence, models=", ".join(drawn))
    counts = sorted({len(np.unique(each.columns["label"])) for each in runs if not each.cell.subject.drawn})
    if not counts:
        return
    levels = " or ".join(f"{100 * (1 - (1 - LEVEL) / count):.6g}" for count in counts)
    sentence = (
        "the interval of each class has a level of {levels} % (Bonferroni). For one metric, model and threat "
        "model, the intervals of all {classes} classes therefore hold together at 95 %, including that of the "
        "lowest class"
    )
    yield note("simultaneous-intervals", sentence, classes=" or ".join(map(str, counts)), levels=levels)
