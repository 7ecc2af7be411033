"""The first screen: which model holds best, which attack is strongest, what agrees, what failed, what is missing."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ...adapters.words import labels_text, radius_text
from ...engine.checks.check_folder import Check
from ...engine.store.verdicts import PairVerdict
from ...engine.tables.groups import Group, group_cells, least_of_draws
from ...engine.tables.table import Table
from ..parts.blocks import (
    Bar,
    Bars,
    Beside,
    Column,
    Entry,
    Fold,
    PageTable,
    Question,
    Questions,
    Said,
    Section,
    make_table,
)
from ..parts.headline import find_chance, judge_first_places
from ..parts.missing import list_missing
from ..parts.percent import percent_range, percent_text
from ..parts.reading import Folder
from ..parts.standings import ModelPlace, Standing, list_standings, threat_of
from ..parts.strongest import judge_strongest
from .agreement import summarise_agreement
from .trust import summarise_alarms

_UNKNOWN = Entry("no clean predictions")
_ALL, _FEW = 8, 5  # models that are all drawn, and how many of more: the other answers stay in view
_THREATS = 3  # threat models that an answer has a sentence for


def write_verdict(folder: Folder, table: Table, pairs: Sequence[PairVerdict], checks: Sequence[Check]) -> Section:
    """Five answers in words, one figure, and the numbers of every model.

    Args:
        folder: the results.
        table: by models, with CA and RA.
        pairs: of implementations, judged.
        checks: of the failure indicators.
    """
    outcomes = folder.outcomes
    standings = list_standings(outcomes, find_chance(outcomes))
    figures = [draw_standing(standing, place) for place, standing in enumerate(standings) if standing.places]
    first = Question("Which model holds best?", _first(judge_first_places(outcomes, standings)))
    strongest = judge_strongest(outcomes) or [Said("No attack inside a ball has a result; see Curves for the others.")]
    rest = Questions(
        (
            Question("Which attack is strongest?", _first(strongest)),
            Question("Do the libraries agree?", summarise_agreement(pairs)),
            Question("Which failure indicators failed?", summarise_alarms(checks)),
            Question("What is missing?", list_missing(outcomes, checks)),
        )
    )
    blocks: list[Any] = [Beside((Questions((first,)),), tuple(figures[:1])), rest]
    if figures[1:]:
        blocks.append(Fold(f"The other threat models ({len(figures) - 1})", tuple(figures[1:])))
    blocks.append(_table(table, group_cells(outcomes, "models"), standings))
    return Section("verdict", "In short", _counts(folder), tuple(blocks))


def draw_standing(standing: Standing, place: int) -> Bars:
    """The models of a threat model with their intervals, the most robust first, and what they are when clean."""
    top = 1.0 if not standing.norm else _top(standing.places)
    bars = tuple(_bar(each, standing, top) for each in standing.places)
    ticks = tuple((share, percent_text(share)) for share in (0.0, 0.5, 1.0))
    if standing.norm:
        legend = [("bar", "median over all images, 0 where wrong when clean, with its 95 % interval")]
        what = "Change that drives a model to the target" if standing.targeted else "Change that fools a model"
        ticks = tuple((share, radius_text(standing.norm, float(f"{share * top:.2g}"))) for share in (0.0, 0.5, 1.0))
    else:
        kept = (
            f"not driven to the target under {standing.under}" if standing.targeted else f"robust to {standing.under}"
        )
        legend = [("bar", f"right when clean and {kept}, with its 95 % interval")]
        what = f"Images that no attack {'drives to the target' if standing.targeted else 'fools'}"
        if any(bar.mark is not None for bar in bars):
            legend.append(("mark", "clean accuracy"))
    if any(each.kept.undecided for each in standing.places):
        text = "of the decided images; the interval reaches to all or none of the undecided fooled"
        legend[0] = ("bar", f"{legend[0][1]}: {text}")
    if any(bar.faint for bar in bars):
        legend.append(("faint", f"significantly different from the first{' ones' * (standing.tied > 1)} (paired test)"))
    shown = len(bars) if len(bars) <= _ALL else _FEW
    under = f", under {standing.under}" if standing.left else ""
    return Bars(f"standing-{place}", f"{what}: {standing.threat}{under}", bars, ticks, tuple(legend), shown)


def _bar(place: ModelPlace, standing: Standing, top: float) -> Bar:
    norm, kept = standing.norm, place.kept
    ends = None if math.isnan(kept.low) else (kept.low, kept.high)
    undecided = f", {kept.undecided} undecided" if kept.undecided else ""
    if norm:
        text = "not found" if math.isinf(kept.value) else radius_text(norm, float(f"{kept.value:.3g}"))
        bare = ends is None or math.isinf(ends[0])
        said = text if bare else f"{text}, 95 % interval {kept.low:.3g} to {kept.high:.3g}"
        said += undecided
    else:
        text = f"{percent_text(kept.value)} ({percent_range(kept.low, kept.high)})"
        said = f"{text}{undecided}, clean {percent_text(place.clean)}"
        said += f"; {percent_text(kept.least)} to {percent_text(kept.most)} of all images" if kept.undecided else ""
    title = f"{place.model}: {said}; n = {kept.images}"
    if not math.isnan(place.p):
        title += f"; against the first p = {place.p:.2g}"
    low, high = (None, None) if ends is None else (min(ends[0] / top, 1.0), min(ends[1] / top, 1.0))
    mark = None if norm or math.isnan(place.clean) else place.clean
    value = 0.0 if math.isnan(kept.value) else min(kept.value / top, 1.0)
    return Bar(place.model, value, low, high, text + undecided, mark, place.apart, title)


def _top(places: Sequence[ModelPlace]) -> float:
    """End of an axis of distances: two digits above the largest that is known."""
    known = [each for place in places for each in (place.kept.value, place.kept.high) if math.isfinite(each)]
    return float(f"{1.05 * max(known, default=1.0):.2g}") or 1.0


def _first(lines: Sequence[Said]) -> tuple[Said, ...]:
    more = len(lines) - _THREATS
    return (*lines[:_THREATS], Said(f"{more} more threat models are below.")) if more > 0 else tuple(lines)


def _counts(folder: Folder) -> str:
    done = folder.outcomes.done
    attacks = len({outcome.cell.row.canonical_name for outcome in done})
    states = Counter(state.status for state in folder.states.values())
    images = " and ".join(map(str, sorted({outcome.cell.subject.images for outcome in done})))
    data = ", ".join(dict.fromkeys(outcome.cell.subject.data for outcome in done))
    models, rows = len(set(folder.models.values())), len({outcome.cell.title for outcome in done})
    parts = (
        f"{models} model{'' if models == 1 else 's'}",
        f"{attacks} attack{'' if attacks == 1 else 's'} in {rows} implementation{'' if rows == 1 else 's'}",
        ", ".join(sorted({outcome.cell.row.library for outcome in done})),
        f"{images} images of {data}",
        f"cells: {', '.join(f'{number} {state}' for state, number in sorted(states.items()))}",
    )
    return " \N{MIDDLE DOT} ".join(parts)


def _table(table: Table, groups: Sequence[Group], standings: Sequence[Standing]) -> PageTable:
    bounded = [row for row in table.rows if row.labels["cells"] and not math.isnan(row.labels["epsilon"])]
    bounded.sort(key=lambda row: (_threat_of(groups, row.labels), -row.metrics["RA"].value))
    rows = [
        (
            row.labels["model"],
            _threat_of(groups, row.labels),
            row.metrics.get("CA", _UNKNOWN),
            row.metrics["RA"],
            row.labels["attacks"],
            row.labels["failed"],
            row.labels["violations"],
        )
        for row in bounded
    ]
    columns = (
        "model",
        "threat model",
        Column("clean accuracy", "CA: share of the images that are correct without an attack"),
        Column(
            "worst-case robust accuracy",
            "RA: share of all images that are correct and robust to every attack; under targeted attacks: correct, and "
            "not driven to the target",
        ),
        Column("attacks", "settings of attacks that count for the worst case"),
        Column("failed", "cells without a result: they prove nothing and are not counted"),
        Column("violations", "examples that broke a rule: neither fooled nor robust, so they lower robust accuracy"),
    )
    note = "95 % intervals of shares, by Clopper and Pearson. More attacks can only lower worst-case accuracy. "
    note += "Attacks without a radius are in Curves."
    if any(place.kept.undecided for each in standings if not each.norm for place in each.places):
        note += " Undecided images count as not robust here: the lower of the two bounds that the first answer names."
    if any(each.left for each in standings if not each.norm):
        note += " Every attack with a result counts here, those too that another model lacks: compare models above."
    note += "".join(
        f" {line}." for line in least_of_draws([each for each in groups if not math.isnan(each.labels["epsilon"])])
    )
    return make_table("verdict-table", "Clean and worst-case robust accuracy", columns, rows, note=note)


def _threat_of(groups: Sequence[Group], labels: Any) -> str:
    return next(
        (threat_of(group) for group in groups if group.parts and str(group.labels) == str(labels)),
        labels_text(labels),
    )
