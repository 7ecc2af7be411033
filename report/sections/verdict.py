"""First section of the report: most robust model, strongest attack, agreement of libraries, and failed indicators."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ...adapters.display_text import format_radius, format_threat_labels
from ...engine.checks.standings import StandingRow, ThreatModelRanking, rank_attacks, threat_of
from ...engine.checks.verdicts import PairComparison
from ...engine.finding import Finding
from ...engine.store.notes import sequence_notes
from ...engine.store.results import Results
from ...engine.tables.groups import TableGroup, group_cells, worst_case_bias_note
from ...engine.tables.table import Table
from ..parts.blocks import (
    Bar,
    Bars,
    Collapsible,
    Column,
    KeyQuestion,
    PageTable,
    Questions,
    Section,
    Statement,
    TableCell,
    TwoColumns,
    list_table,
)
from ..parts.report_data import ReportData
from ..parts.sentences import percent_range, percent_text, say_best_models, say_missing, say_strongest_attacks
from .agreement import summarise_agreement
from .failure_indicators import failed_indicators

_UNKNOWN = TableCell("no clean predictions")
_ALL, _FEW = 8, 5  # most models drawn in full, and number drawn if there are more, to keep the other answers in view
_THREATS = 3  # most threat models with a sentence per question


def write_verdict(
    folder: ReportData, table: Table, pairs: Sequence[PairComparison], checks: Sequence[Finding]
) -> Section:
    """Build the first section: answers to the key questions, figures, and a table of all models.

    Args:
        folder: data of the report.
        table: table by models, with the metrics CA and RA.
        pairs: pairs of implementations with their verdicts.
        checks: results of the failure indicators.
    """
    outcomes, standings = folder.outcomes, folder.standings
    figures = [draw_standing(standing, place) for place, standing in enumerate(standings) if standing.places]
    first = KeyQuestion("Which model is most robust?", _first(say_best_models(outcomes, standings)))
    strongest = say_strongest_attacks(rank_attacks(outcomes))
    strongest = strongest or [Statement("No attack with a radius has a result; see Curves for the others.")]
    rest = (
        KeyQuestion("Which attack is strongest?", _first(strongest)),
        KeyQuestion("Do the libraries agree?", summarise_agreement(pairs)),
        KeyQuestion("Which failure indicators failed?", failed_indicators(checks)),
        KeyQuestion("What is missing?", say_missing(outcomes, checks)),
    )
    blocks: list[Any] = [TwoColumns((Questions((first,)),), tuple(figures[:1])), Questions(rest)]
    if figures[1:]:
        blocks.append(Collapsible(f"The other threat models ({len(figures) - 1})", tuple(figures[1:])))
    blocks.append(_table(table, group_cells(outcomes, "models"), standings, outcomes))
    return Section("verdict", "In short", _counts(folder), tuple(blocks))


def draw_standing(standing: ThreatModelRanking, place: int) -> Bars:
    """Draw the robustness of the models under a threat model, the most robust first, with intervals."""
    norm, shares = standing.norm, (0.0, 0.5, 1.0)
    known = [end for each in standing.places for end in (each.value, each.high) if math.isfinite(end)]
    top = (float(f"{1.05 * max(known, default=1.0):.2g}") or 1.0) if norm else 1.0
    bars = tuple(_bar(each, norm, top) for each in standing.places)
    if norm:
        what = "Change needed to reach the target" if standing.targeted else "Change needed to fool a model"
        legend = [("bar", "median over all images, 0 if misclassified when clean, with its 95 % interval")]
        ticks = tuple((share, format_radius(norm, float(f"{share * top:.2g}"))) for share in shares)
    else:
        what = f"Images {'on which no attack reaches the target' if standing.targeted else 'that no attack fools'}"
        kept = f"{'not classified as the target under' if standing.targeted else 'robust to'} {standing.attacks_text}"
        legend = [("bar", f"correct when clean and {kept}, with its 95 % interval")]
        legend += [("mark", "clean accuracy")] if any(bar.mark is not None for bar in bars) else []
        ticks = tuple((share, percent_text(share)) for share in shares)
    if any(each.kept.undecided for each in standing.places):
        text = "rate of the decided images; the interval covers both extremes: all undecided images are fooled, or none"
        legend[0] = ("bar", f"{legend[0][1]}: {text}")
    if any(bar.faint for bar in bars):
        ones = " ones" if len(standing.tied) > 1 else ""
        legend.append(("faint", f"significantly different from the first{ones} (paired test)"))
    under = f", under {standing.attacks_text}" if standing.left else ""
    shown = len(bars) if len(bars) <= _ALL else _FEW
    return Bars(f"standing-{place}", f"{what}: {standing.threat}{under}", bars, ticks, tuple(legend), shown)


def _bar(place: StandingRow, norm: str, top: float) -> Bar:
    kept = place.kept
    undecided = f", {kept.undecided} undecided" if kept.undecided else ""
    if norm:
        text = "not found" if math.isinf(kept.value) else format_radius(norm, float(f"{kept.value:.3g}"))
        ends = f", 95 % interval {kept.low:.3g} to {kept.high:.3g}" if math.isfinite(kept.low) else ""
        said = text + ends + undecided
    else:
        text = f"{percent_text(kept.value)} ({percent_range(kept.low, kept.high)})"
        said = f"{text}{undecided}, clean {percent_text(place.clean)}"
        said += f"; {percent_text(kept.least)} to {percent_text(kept.most)} of all images" if kept.undecided else ""
    title = f"{place.name}: {said}; n = {kept.images}"
    title += "" if math.isnan(place.p) else f"; against the first p = {place.p:.2g}"
    low, high = (None if math.isnan(kept.low) else min(end / top, 1.0) for end in (kept.low, kept.high))
    mark = None if norm or math.isnan(place.clean) else place.clean
    value = 0.0 if math.isnan(kept.value) else min(kept.value / top, 1.0)
    return Bar(place.name, value, low, high, text + undecided, mark, place.apart, title)


def _first(lines: Sequence[Statement]) -> tuple[Statement, ...]:
    more = len(lines) - _THREATS
    return (*lines[:_THREATS], Statement(f"{more} more threat models are below.")) if more > 0 else tuple(lines)


def _counts(folder: ReportData) -> str:
    done = folder.outcomes.done
    states = Counter(state.status for state in folder.states.values())
    images = " and ".join(map(str, sorted({outcome.cell.subject.images for outcome in done})))
    data = ", ".join(dict.fromkeys(outcome.cell.subject.data_name for outcome in done))
    models, rows = len(set(folder.models.values())), len({outcome.cell.title for outcome in done})
    attacks = len({outcome.cell.row.canonical_name for outcome in done})
    parts = (
        f"{models} model{'' if models == 1 else 's'}",
        f"{attacks} attack{'' if attacks == 1 else 's'} in {rows} implementation{'' if rows == 1 else 's'}",
        ", ".join(sorted({outcome.cell.row.library for outcome in done})),
        f"{images} images of {data}",
        f"runs: {', '.join(f'{number} {state}' for state, number in sorted(states.items()))}",
    )
    return " \N{MIDDLE DOT} ".join(parts)


def _table(
    table: Table, groups: Sequence[TableGroup], standings: Sequence[ThreatModelRanking], outcomes: Results
) -> PageTable:
    threats = {str(group.labels): threat_of(group) for group in groups if group.parts}

    def threat(labels: Mapping[str, Any]) -> str:
        return threats.get(str(labels)) or format_threat_labels(labels)

    robust = (
        "RA: proportion of all images that are correct and robust to every attack; under targeted attacks: correct, "
        "and not classified as the target"
    )
    broken = "invalid examples: neither fooled nor robust, so they lower robust accuracy"
    bounded = [row for row in table.rows if row.labels["cells"] and not math.isnan(row.labels["epsilon"])]
    bounded.sort(key=lambda row: (threat(row.labels), -row.metrics["RA"].value))
    one = len({threat(row.labels) for row in bounded}) == 1
    union = "RA_union: proportion of all images that are correct and robust to every attack of every threat model"
    over_union = [
        (Column("over their union", union), lambda row: row.metrics["RA_union"])
        for _ in {"RA_union"} & {*table.symbols}
    ]
    columns = (
        ("model", lambda row: row.labels["model"]),
        (Column("threat model", wide=one), lambda row: threat(row.labels)),
        (
            Column("clean accuracy", "CA: proportion of images that are correct without an attack"),
            lambda row: row.metrics.get("CA", _UNKNOWN),
        ),
        (Column("worst-case robust accuracy", robust), lambda row: row.metrics["RA"]),
        *over_union,
        (Column("attacks", "attacks and settings in the worst case", wide=True), lambda row: row.labels["attacks"]),
        (
            Column("failed", "runs without a result, which are not counted", wide=True),
            lambda row: row.labels["failed"],
        ),
        (Column("invalid", broken, wide=True), lambda row: row.labels["violations"]),
    )
    shares = [each for each in standings if not each.norm]
    sentences = [f"{each}." for each in sequence_notes(outcomes)]
    sentences = sentences or ["95 % intervals of proportions, by Clopper and Pearson."]
    note = " ".join([*sentences, "More attacks can only lower worst-case accuracy. "])
    note += "Attacks without a radius are in Curves."
    if any(place.kept.undecided for each in shares for place in each.places):
        note += " Undecided images count as not robust here, which is the lower of the two bounds in the first answer."
    if any(each.left for each in shares):
        note += " Every attack with a result counts here, even if it was not run on all models; compare models above."
    lines = worst_case_bias_note([each for each in groups if not math.isnan(each.labels["epsilon"])])
    note += "".join(f" {line}." for line in lines)
    return list_table("verdict-table", "Clean and worst-case robust accuracy", bounded, columns, note=note)
