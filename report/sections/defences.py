"""Section on defences: clean against robust accuracy, detectors, and challenges by adaptive attacks."""

import math
from collections.abc import Sequence
from typing import Any

from ...adapters.display_text import format_radius, format_threat_labels, format_threat_model
from ...adapters.models.defences.names import describe_gradients
from ...engine.challenge.attempts import PARTS
from ...engine.challenge.challenge_result import NO_RESULT, lead_of
from ...engine.detection.detection_rates import RATES, Detection, evaluate_scores
from ...engine.detection.roc import CountedShare
from ...engine.finding import Finding
from ...engine.statistics.bootstrap import Estimate
from ...engine.store.notes import sequence_notes
from ...engine.store.other_records import list_scores
from ...engine.store.results import Results
from ...engine.tables.defence_table import build_defence
from ...engine.tables.groups import group_cells, model_names, worst_case_bias_note
from ...engine.tables.table import Table
from ...engine.tables.tradeoff import TradeOff, build_tradeoffs, defences_by_original
from ..parts.blocks import (
    Collapsible,
    Column,
    PageTable,
    Panels,
    Section,
    TableCell,
    Text,
    badge,
    list_table,
    make_table,
)
from ..parts.figures import PointWithIntervals, draw_crosses

_MADE_ON = {
    "own": "attacks made on each model itself",
    "original": "examples made on the undefended model, by an attacker who does not know about the defence",
}
_ROBUST = (
    "correct and robust to all of these attacks; for a randomised model, the rate over its samples (in records of "
    "earlier versions, for examples made on the original, the median sample)"
)
_DRAWN = 6  # drawings; the tables have all
_CHALLENGE = {"falls": "fail", "masks": "warn", "holds": "pass", "unknown": "unknown"}
_SHARES = {
    "detected": "proportion of the images that fooled the model above the threshold for this false-positive rate",
    "false alarms": "proportion of clean test images that are flagged; the nominal rate is for the calibration images",
    "fooled, not detected": "proportion of the validly attacked images that fool the model without being detected",
}
_INTERVALS = (
    "Intervals: bootstrap over images for the AUC (none if all examples score above, or all below, the clean images), "
    "Clopper and Pearson's for proportions."
)


def write_defences(outcomes: Results, **drawing: Any) -> Section | None:
    """Build the section that compares clean and robust accuracy of every defended model with its original.

    Args:
        outcomes: results of the folder, read with "OTR".
        **drawing: `bootstrap` and `seed` of the intervals.

    Returns:
        The section, or None if there are no defences.
    """
    families = defences_by_original(outcomes)
    if not families:
        return None
    names = model_names(outcomes)
    tradeoffs = build_tradeoffs(outcomes)
    figures = tuple(_figure(each, place) for place, each in enumerate(tradeoffs[:_DRAWN]))
    blocks: list[Any] = [Panels(figures, shown=2)] if figures else []
    if tradeoffs:
        blocks.append(Collapsible("Clean against robust accuracy, in numbers", (_tradeoff_table(outcomes, tradeoffs),)))
    blocks += [Text(each.detail, "note") for each in _least_lines(outcomes, tradeoffs)]
    defended = list(dict.fromkeys(names[key] for keys in families.values() for key in keys))
    notes = {model: describe_gradients(model) for model in defended}
    blocks += [Text(f"{model}: {line}", "warn") for model, line in notes.items() if line]
    by_name: dict[str, dict[str, None]] = {}  # one table for a pair on several sets of images
    for original, keys in families.items():
        pairs = {names[key]: None for key in keys if original in outcomes.clean and key in outcomes.clean}
        by_name.setdefault(names[original], {}).update(pairs)
    for place, (original, known) in enumerate(by_name.items()):
        tables = [(name, build_defence(outcomes, original, name, **drawing)) for name in known]
        if tables:
            table = _table(original, tables, place)
            blocks.append(Collapsible(table.caption, (table,)))
    lead = (
        "The clean and the robust accuracy of each defence, for two attackers: one who "
        "attacks the defended model itself, and one who does not know about the defence. "
        "Robustness to these attacks does not imply robustness to others."
    )
    return Section("defences", "Defences", lead, tuple(blocks))


def _figure(tradeoff: TradeOff, place: int) -> Any:
    crosses = [PointWithIntervals(point.model, point.clean[:3], point.robust[:3]) for point in tradeoff.points]
    threat, first = format_threat_labels(dict(tradeoff.threat)), tradeoff.points[0]
    caption = (
        f"{first.model} and its defences, {threat}: {_MADE_ON[tradeoff.made_on]}; n = {first.clean.n}, "
        "bars: 95 % intervals"
    )
    return draw_crosses(
        f"tradeoff-{place}", crosses, x_axis="clean accuracy", y_axis="worst-case robust accuracy", caption=caption
    )


def _least_lines(outcomes: Results, tradeoffs: Sequence[TradeOff]) -> list[Finding]:
    """Return notes on the bias of the worst case, for the randomised models among the points."""
    shown = {point.model for each in tradeoffs for point in each.points}
    groups = [group for group in group_cells(outcomes, "models") if group.labels["model"] in shown]
    return worst_case_bias_note([group for group in groups if not math.isnan(group.labels["epsilon"])])


def _tradeoff_table(outcomes: Results, tradeoffs: Sequence[TradeOff]) -> PageTable:
    columns = (
        ("model", lambda item: item[1].model),
        ("threat model", lambda item: format_threat_labels(dict(item[0].threat))),
        (Column("made on", "own: the model itself; original: the undefended one"), lambda item: item[0].made_on),
        (
            Column("attacks", "number of attacks; on each image the strongest counts"),
            lambda item: ", ".join(dict.fromkeys(item[0].attacks)),
        ),
        (Column("clean accuracy", "proportion of all images"), lambda item: item[1].clean),
        (Column("robust accuracy", _ROBUST), lambda item: item[1].robust),
    )
    points = [(each, point) for each in tradeoffs for point in each.points]
    about = [f"{each}." for each in sequence_notes(outcomes)] or ["Intervals by Clopper and Pearson."]
    note = " ".join([*about, *_undecided_lines(tradeoffs)])
    return list_table("tradeoffs", "Clean against robust accuracy", points, columns, note=note)


def _undecided_lines(tradeoffs: Sequence[TradeOff]) -> list[str]:
    """Explain how invalid results affect robust accuracies, with the number of images. Empty if there are none."""
    counts = [
        f"{point.undecided} of {point.robust.n} images of {point.model} ({each.made_on})"
        for each in tradeoffs
        for point in each.points
        if point.undecided
    ]
    line = "Invalid results (outside the threat model, or no finite logits) count as not robust, and as "
    return [f"{line}robust in the upper bounds of the intervals: {', '.join(dict.fromkeys(counts))}."] if counts else []


def _table(original: str, tables: Sequence[tuple[str, Table]], place: int) -> PageTable:
    symbols = list(dict.fromkeys(symbol for _, table in tables for symbol in table.symbols))
    nothing = Estimate(float("nan"), float("nan"), float("nan"), 0)
    rows = [
        (
            name,
            ", ".join(filter(None, (row.labels["examples"], row.labels["setting"]))),
            row.labels["made_on"],
            "" if row.labels["examples"] == "clean" else format_threat_labels(row.labels),
            row.labels["images"],
            row.labels["violations"],
            *(row.metrics.get(symbol, nothing) for symbol in symbols),
        )
        for name, table in tables
        for row in table.rows
    ]
    columns = ("defended", "examples", "made on", "threat model", "images", "invalid", *symbols)
    return make_table(f"defence-table-{place}", f"Defended minus original: {original}", columns, rows)


def write_detectors(outcomes: Results) -> Section | None:
    """Build the section with a table of every detector on every attack, or None if no detector was measured."""
    names = model_names(outcomes)
    kept = list(list_scores(outcomes))
    if not kept:
        return None
    digests = {scores.digest for _, scores in kept}
    detections = [(scores.digest, evaluate_scores(scores, outcome, RATES)) for outcome, scores in kept]
    rows = [
        (_detector(each, digest, digests), names[each.cell.subject.key], *_numbers(each)) for digest, each in detections
    ]
    shares = [text for rate in RATES for text in (f"detected at {rate:.0%}", f"false alarms at {rate:.0%}")]
    missed = [f"fooled, not detected at {rate:.0%}" for rate in RATES]
    columns = (
        "detector",
        "model",
        "attack",
        "threat model",
        Column("AUC", "proportion of pairs in which a fooling image scores above a clean one; n: the fooling images"),
        *(Column(text, _SHARES[text.split(" at ")[0]]) for text in (*shares, *missed)),
    )
    table = make_table("detectors", "Detectors on the examples", columns, rows, note=_INTERVALS)
    lines = list(dict.fromkeys(note for _, each in detections for note in each.notes))
    lead = (
        "A detector flags images as adversarial before the model classifies them. These attacks did not try to avoid "
        "detection. To measure attacks that do, use `MODEL+detector:FILE`."
    )
    return Section("detectors", "Detectors", lead, (table, *(Text(line, "note") for line in lines)))


def _detector(detection: Detection, digest: str, digests: set[str]) -> str:
    """Return the detector's file and kind, and also its digest if several files were measured."""
    more = f" [{digest[:6]}]" if len(digests) > 1 else ""
    return f"{detection.detector}{more} ({detection.name})"


def _numbers(detection: Detection) -> list[Any]:
    area = Estimate(*detection.area, detection.fooled)
    shares = [share for at in detection.rates for share in (at.detected, at.false_alarms)]
    threat = format_threat_model(detection.cell.threat_model, detection.cell.target)
    return [detection.cell.title, threat, area, *map(_estimate, (*shares, *(at.missed for at in detection.rates)))]


def _estimate(share: CountedShare) -> Estimate:
    return Estimate(share.value, *((share.low, share.high) if share.n else (math.nan, math.nan)), share.n)


def write_challenges(documents: Sequence[dict[str, Any]]) -> Section | None:
    """Build the section on challenges: for each defence the verdict, the attacks, and the accuracy by radius.

    Returns:
        The section, or None if there are no challenges.
    """
    if not documents:
        return None
    blocks: list[Any] = []
    for place, document in enumerate(documents):
        style = "lead" if document["verdict"] == "holds" else "warn"
        blocks.append(Text(f"{document['model']}: {document['sentence']}.", style))
        blocks += [Text(f"{line[0].upper()}{line[1:]}.") for line in lead_of(document)]
        blocks += [_attempts(place, document), _radii(place, document)]
    lead = (
        "Attacks adapted to the defence: gradient attacks through every gradient variant (BPDA, EOT), "
        "transferred examples, score-based and decision-based attacks, and larger radii (Carlini et al. 2019; "
        "Tramer et al. 2020). An image counts as correct only if no attack fools it. No attack was designed for this "
        "particular defence."
    )
    table = make_table(
        "challenge-verdicts",
        "Verdicts",
        ("verdict", "model", "radius", "clean accuracy", "worst-case accuracy", "undefended, worst case"),
        [
            (
                badge(_CHALLENGE.get(each["verdict"], "unknown"), "not judged" if each["verdict"] == "unknown" else ""),
                each["model"],
                f"{each['norm']} {format_radius(each['norm'], each['epsilon'])}",
                *(_entry(each[name]) for name in ("clean", "worst", "undefended")),
            )
            for each in documents
        ],
        note="pass: the defence holds against these attacks. warn: signs of gradient masking. fail: it falls. "
        "not judged: results needed for a verdict are missing.",
    )
    return Section("challenge", "Challenge: adaptive attacks on a defence", lead, (table, *blocks))


def _attempts(place: int, document: dict[str, Any]) -> PageTable:
    def accuracy(attempt: dict[str, Any]) -> Any:
        failed = TableCell(f"failed: {attempt['error']}", kind="unknown")
        return _entry(attempt["accuracy"]) if attempt["accuracy"] else failed

    made_on = "the model under attack; the examples are evaluated on the defended model"
    share = "proportion of all images that are correct under this attack, with its 95 % interval"
    columns = (
        ("attacker", lambda each: PARTS.get(each["part"], each["part"])),
        ("attack", lambda each: each["attack"]),
        (Column("made on", made_on), lambda each: each["made_on"]),
        (Column("gradients", "how gradients pass through the defence"), lambda each: each["gradients"] or "as named"),
        ("radius", lambda each: format_radius(document["norm"], each["epsilon"])),
        (Column("accuracy", share), accuracy),
        (
            "invalid",
            lambda each: ", ".join(f"{count} {kind}" for kind, count in sorted(each["violations"].items())),
        ),
    )
    return list_table(f"challenge-{place}", f"Attacks on {document['model']}", document["attempts"], columns)


def _radii(place: int, document: dict[str, Any]) -> PageTable:
    rows = [(format_radius(document["norm"], each["epsilon"]), _entry(each)) for each in document["radii"]]
    return make_table(
        f"challenge-radii-{place}",
        f"Accuracy of {document['model']} at larger radii",
        ("radius", "worst-case accuracy"),
        rows,
        note=f"A defence whose accuracy never reaches 0 masks its gradients. {NO_RESULT}.",
    )


def _entry(share: dict[str, Any] | None) -> Any:
    if share is None or share["value"] is None:
        return TableCell("-")
    low, high = (math.nan if share[name] is None else share[name] for name in ("low", "high"))
    return Estimate(share["value"], low, high, share["n"])
