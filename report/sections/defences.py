"""Defences: what each costs on clean images, and what it keeps under attack."""

import math
from collections.abc import Sequence
from typing import Any

from ...adapters.models.defences.names import describe_gradients
from ...adapters.words import labels_text
from ...engine.statistics.bootstrap import Estimate
from ...engine.store.outcomes import Outcomes
from ...engine.tables.defence_table import build_defence
from ...engine.tables.groups import group_cells, least_of_draws, model_names
from ...engine.tables.table import Table
from ...engine.tables.tradeoff import TradeOff, build_tradeoffs, families_of
from ..parts.blocks import Column, PageTable, Section, Text, make_table
from ..parts.figures import Cross, draw_crosses

_MADE_ON = {
    "own": "attacks made on each model itself",
    "original": "examples made on the undefended model, by an attacker who does not know the defence",
}
_ROBUST = (
    "correct and robust to all of them; a random model by its draws (on the original's examples in records of earlier "
    "versions by the median draw)"
)
_DRAWN = 6  # drawings; the tables have all


def write_defences(outcomes: Outcomes, **drawing: Any) -> Section | None:
    """Trade-offs, and every defence against its original; None for a folder without a defence.

    Args:
        outcomes: of the folder, read with "OTR".
        **drawing: `bootstrap` and `seed`.
    """
    families = families_of(outcomes)
    if not families:
        return None
    names = model_names(outcomes)
    tradeoffs = build_tradeoffs(outcomes)
    blocks: list[Any] = [_figure(each, place) for place, each in enumerate(tradeoffs[:_DRAWN])]
    blocks += [_tradeoff_table(tradeoffs)] if tradeoffs else []
    blocks += [Text(line, "note") for line in _least_lines(outcomes, tradeoffs)]
    defended = list(dict.fromkeys(names[key] for keys in families.values() for key in keys))
    notes = {model: describe_gradients(model) for model in defended}
    blocks += [Text(f"{model}: {line}", "warn") for model, line in notes.items() if line]
    by_name: dict[str, dict[str, None]] = {}  # a pair on several sets of images is one table
    for original, keys in families.items():
        pairs = {names[key]: None for key in keys if original in outcomes.clean and key in outcomes.clean}
        by_name.setdefault(names[original], {}).update(pairs)
    for place, (original, known) in enumerate(by_name.items()):
        tables = [(name, build_defence(outcomes, original, name, **drawing)) for name in known]
        blocks += [_table(original, tables, place)] if tables else []
    lead = (
        "What a defence costs on clean images, and how much accuracy it keeps under attack, for two attackers: one who "
        "attacks the defended model itself, and one who does not know that it is defended. "
        "Robustness to these attacks does not imply robustness to others."
    )
    return Section("defences", "Defences", lead, tuple(blocks), str(len(defended)))


def _figure(tradeoff: TradeOff, place: int) -> Any:
    crosses = [Cross(point.model, point.clean[:3], point.robust[:3]) for point in tradeoff.points]
    threat, first = labels_text(dict(tradeoff.threat)), tradeoff.points[0]
    caption = (
        f"{first.model} and its defences, {threat}: {_MADE_ON[tradeoff.made_on]}; n = {first.clean.n}, "
        "bars: 95 % intervals"
    )
    return draw_crosses(
        f"tradeoff-{place}", crosses, x_axis="clean accuracy", y_axis="worst-case robust accuracy", caption=caption
    )


def _least_lines(outcomes: Outcomes, tradeoffs: Sequence[TradeOff]) -> list[str]:
    """What the worst case over several results is of a random model that a point is about."""
    shown = {point.model for each in tradeoffs for point in each.points}
    groups = [group for group in group_cells(outcomes, "models") if group.labels["model"] in shown]
    return least_of_draws([group for group in groups if not math.isnan(group.labels["epsilon"])])


def _tradeoff_table(tradeoffs: Sequence[TradeOff]) -> PageTable:
    rows = [
        (
            point.model,
            labels_text(dict(each.threat)),
            each.made_on,
            ", ".join(dict.fromkeys(each.attacks)),
            point.clean,
            point.robust,
        )
        for each in tradeoffs
        for point in each.points
    ]
    columns = (
        "model", "threat model", Column("made on", "own: the model itself; original: the undefended one"),
        Column("attacks", "on each image the strongest of them counts"),
        Column("clean accuracy", "share of all images"), Column("robust accuracy", _ROBUST),
    )  # fmt: skip
    note = " ".join(("Intervals by Clopper and Pearson.", *_undecided_lines(tradeoffs)))
    return make_table("tradeoffs", "Clean against robust accuracy", columns, rows, note=note)


def _undecided_lines(tradeoffs: Sequence[TradeOff]) -> list[str]:
    """What results that prove nothing do to robust accuracies, and of how many images they are; empty without any."""
    counts = [
        f"{point.undecided} of {point.robust.n} images of {point.model} ({each.made_on})"
        for each in tradeoffs
        for point in each.points
        if point.undecided
    ]
    line = (
        "Results that broke a rule, or have no finite logits, prove nothing: their images count as not robust, and as "
    )
    return [f"{line}robust in the upper ends of the intervals: {', '.join(dict.fromkeys(counts))}."] if counts else []


def _table(original: str, tables: Sequence[tuple[str, Table]], place: int) -> PageTable:
    symbols = list(dict.fromkeys(symbol for _, table in tables for symbol in table.symbols))
    nothing = Estimate(float("nan"), float("nan"), float("nan"), 0)
    rows = [
        (
            name,
            ", ".join(filter(None, (row.labels["examples"], row.labels["setting"]))),
            row.labels["made_on"],
            "" if row.labels["examples"] == "clean" else labels_text(row.labels),
            row.labels["images"],
            row.labels["violations"],
            *(row.metrics.get(symbol, nothing) for symbol in symbols),
        )
        for name, table in tables
        for row in table.rows
    ]
    columns = ("defended", "examples", "made on", "threat model", "images", "violations", *symbols)
    return make_table(f"defence-table-{place}", f"Defended minus original: {original}", columns, rows)
