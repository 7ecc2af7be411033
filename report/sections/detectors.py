"""What trained detectors see of the examples of a folder, and what fools the model undetected."""

import math
from typing import Any

from ...adapters.words import threat_text
from ...engine.detection.judging import RATES, Detection, judge_scores
from ...engine.detection.roc import CountedShare
from ...engine.statistics.bootstrap import Estimate
from ...engine.store.other_records import list_scores
from ...engine.store.outcomes import Outcomes
from ...engine.tables.groups import model_names
from ..parts.blocks import Column, Section, Text, make_table


def write_detectors(outcomes: Outcomes) -> Section | None:
    """A table of every detector on every attack; None for a folder in which none was measured.

    Args:
        outcomes: of the folder.
    """
    names = model_names(outcomes)
    kept = list(list_scores(outcomes))
    if not kept:
        return None
    digests = {scores.digest for _, scores in kept}
    detections = [(scores.digest, judge_scores(scores, outcome, RATES)) for outcome, scores in kept]
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
        Column("AUC", "how often a fooling image scores above a clean one, of all pairs; n: the fooling images"),
        *(Column(text, _MEANING[text.split(" at ")[0]]) for text in (*shares, *missed)),
    )
    table = make_table("detectors", "Detectors on the examples", columns, rows, note=_NOTE)
    lines = list(dict.fromkeys(note for _, each in detections for note in each.notes))
    lead = (
        "A detector runs beside a model and calls images adversarial. These attacks did not know it, so detecting "
        "them says little about an attack that does; for such attacks use `MODEL+detector:FILE`."
    )
    return Section("detectors", "Detectors", lead, (table, *(Text(line, "note") for line in lines)), str(len(digests)))


_MEANING = {
    "detected": "of the images that fooled the model, the share above the threshold for this false-alarm rate",
    "false alarms": "of the clean test images; the rate is that on the calibration images, and may differ here",
    "fooled, not detected": "of the validly attacked images: the damage to a user of model and detector",
}
_NOTE = "Intervals: by resampling images for the AUC (none where every pair agrees), Clopper and Pearson's for shares."


def _detector(detection: Detection, digest: str, digests: set[str]) -> str:
    """Its file and kind; the digest where several files were measured."""
    more = f" [{digest[:6]}]" if len(digests) > 1 else ""
    return f"{detection.detector}{more} ({detection.name})"


def _numbers(detection: Detection) -> list[Any]:
    area = Estimate(*detection.area, detection.fooled)
    shares = [share for at in detection.rates for share in (at.detected, at.false_alarms)]
    threat = threat_text(detection.cell.threat_model, detection.cell.target)
    return [detection.cell.title, threat, area, *map(_share, (*shares, *(at.missed for at in detection.rates)))]


def _share(share: CountedShare) -> Estimate:
    return Estimate(share.value, *((share.low, share.high) if share.n else (math.nan, math.nan)), share.n)
