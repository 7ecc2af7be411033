"""What the scores of a detector on one cell come to: areas, lines at rates of false alarms, what fools undetected."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...adapters.models.detectors.detector_file import threshold_at
from ..attack_run import AttackRun
from ..store.other_records import DetectorScores
from ..store.results import RunResult
from .roc import Area, CountedShare, area_of_images, share_of

RATES = (0.01, 0.05)  # of false alarms


@dataclass(frozen=True)
class OperatingPoint:
    """A detector whose line is drawn at a rate of false alarms on its calibration images.

    Args:
        rate: that was asked for.
        threshold: the score above which it calls an image adversarial.
        detected: of the images that fooled the model, those above it.
        false_alarms: of the clean test images, those above it.
        missed: of the images that were attacked by the rules, those that fooled the model and were not detected.
    """

    rate: float
    threshold: float
    detected: CountedShare
    false_alarms: CountedShare
    missed: CountedShare


@dataclass(frozen=True)
class Detection:
    """A detector against the examples of one cell.

    Args:
        detector: its file.
        name: of the detector.
        cell: whose examples these are.
        area: under the ROC curve, fooled against clean images.
        fooled: how many images fooled the model.
        clean: how many clean test images there are.
        rates: one for each rate of false alarms.
        left_out: test images that the detector has seen when it was trained.
        notes: what is worth saying.
    """

    detector: str
    name: str
    cell: AttackRun
    area: Area
    fooled: int
    clean: int
    rates: tuple[OperatingPoint, ...]
    left_out: int = 0
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """All of it as JSON types; what is undefined is None."""
        shares = ("detected", "false_alarms", "missed")
        rates = [{**vars(at), **{name: _of_share(getattr(at, name)) for name in shares}} for at in self.rates]
        rules = self.cell.threat_model
        about = {"detector": self.detector, "name": self.name, "model": self.cell.subject.name}
        about |= {"attack": self.cell.title, "cell": self.cell.key, "norm": rules.norm, "epsilon": rules.epsilon}
        about |= {"fooled": self.fooled, "clean": self.clean, "left_out": self.left_out}
        return {**about, "auc": _defined(self.area._asdict()), "rates": rates}


def _of_share(share: CountedShare) -> dict[str, Any]:
    return _defined({**share._asdict(), "value": share.value})


def _defined(numbers: dict[str, Any]) -> dict[str, Any]:
    """The numbers, None for NaN."""
    return {name: None if isinstance(each, float) and math.isnan(each) else each for name, each in numbers.items()}


def evaluate_scores(scores: DetectorScores, outcome: RunResult, rates: Sequence[float]) -> Detection:
    """One detector against one cell.

    Args:
        scores: of the detector on the cell's n images.
        outcome: the cell.
        rates: of false alarms.

    Raises:
        InvalidInput: if a rate is none.
    """
    clean, adversarial, unseen = scores.clean, scores.adversarial, ~scores.seen
    silent = unseen & ~(np.isfinite(clean) & (np.isfinite(adversarial) | ~outcome.usable))
    fresh = unseen & ~silent
    usable = outcome.usable & fresh
    fooled = usable & outcome.columns["success"]
    calibration, at_rates = torch.from_numpy(scores.calibration), []
    for rate in rates:
        line = threshold_at(calibration, rate)
        detected, missed = share_of(adversarial[fooled] > line), share_of((fooled & (adversarial <= line))[usable])
        at_rates.append(OperatingPoint(rate, line, detected, share_of(clean[fresh] > line), missed))
    few = [rate for rate in rates if rate * len(calibration) < 1]
    notes = [
        f"{scores.file}: {rate:.3g} of its {len(calibration)} calibration images is less than one: no alarm there"
        for rate in few
    ]
    area = area_of_images(clean[fresh], adversarial[fresh], fooled[fresh])
    numbers = int(fooled.sum()), int(fresh.sum())
    left_out = int((~unseen).sum())
    if silent.any():
        notes.append(
            f"{scores.file}: {int(silent.sum())} of {len(silent)} images left out, whose scores are NaN or infinite"
        )
    if left_out:
        notes.append(f"{scores.file}: {left_out} of {len(fresh)} test images left out, which it was trained on")
    return Detection(scores.file, scores.name, outcome.cell, area, *numbers, tuple(at_rates), left_out, tuple(notes))
