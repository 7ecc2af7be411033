"""Metrics of a detector on one run: area under the ROC curve, and rates at given false-positive rates."""

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

RATES = (0.01, 0.05)  # false-positive rates


@dataclass(frozen=True)
class OperatingPoint:
    """Rates of a detector at one threshold, which is chosen by the false-positive rate on the calibration images.

    Args:
        rate: false-positive rate on the calibration images.
        threshold: score above which an image is classified as adversarial.
        detected: proportion of detected examples, among the examples that fool the model.
        false_alarms: proportion of clean test images that are classified as adversarial.
        missed: proportion of examples that fool the model and are not detected, among all images with a usable result.
    """

    rate: float
    threshold: float
    detected: CountedShare
    false_alarms: CountedShare
    missed: CountedShare


@dataclass(frozen=True)
class Detection:
    """Metrics of a detector on the examples of one attack run.

    Args:
        detector: path of the detector file.
        name: name of the detector.
        cell: the attack run.
        area: area under the ROC curve that separates examples that fool the model from clean images.
        fooled: number of examples that fool the model.
        clean: number of clean test images.
        rates: rates of the detector at the threshold of each false-positive rate.
        left_out: number of test images that were omitted because the detector was trained on them.
        notes: notes for the user, such as omitted images.
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
        """Return the metrics as JSON types. Undefined numbers are None."""
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
    return {name: None if isinstance(each, float) and math.isnan(each) else each for name, each in numbers.items()}


def evaluate_scores(scores: DetectorScores, outcome: RunResult, rates: Sequence[float]) -> Detection:
    """Compute the metrics of a detector on one run.

    Args:
        scores: scores of the detector on the clean images and the examples of the run.
        outcome: the finished run.
        rates: false-positive rates on the calibration images.

    Raises:
        InvalidInput: If a rate is invalid.
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
        f"{scores.file}: with {len(calibration)} calibration images, a false-positive rate of {rate:.3g} allows no "
        "alarm"
        for rate in few
    ]
    area = area_of_images(clean[fresh], adversarial[fresh], fooled[fresh])
    numbers = int(fooled.sum()), int(fresh.sum())
    left_out = int((~unseen).sum())
    if silent.any():
        notes.append(
            f"{scores.file}: {int(silent.sum())} of {len(silent)} images omitted, because their scores are NaN or "
            "infinite"
        )
    if left_out:
        notes.append(
            f"{scores.file}: {left_out} of {len(fresh)} test images omitted, because the detector was trained on them"
        )
    return Detection(scores.file, scores.name, outcome.cell, area, *numbers, tuple(at_rates), left_out, tuple(notes))
