"""Measurements for the card of a trained model: clean and robust accuracy on held-out images."""

import platform
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ... import __version__
from ...adapters import find_implementation, run_attack
from ...adapters.catalogue.lookup import find_library
from ...adapters.data.datasets import Data
from ...adapters.models.classifier import Classifier
from ...adapters.threat_model import ThreatModel
from ...errors import DavylampError
from ...intervals import proportion_interval
from .settings import TrainingSettings

STEPS = 20  # steps of the PGD for measurement: twice the usual number for training
_PREFERRED = ("foolbox:pgd", "torchattacks:pgd", "art:pgd")


def measure_model(classifier: Classifier, data: Data, settings: TrainingSettings) -> dict[str, Any]:
    """Measure the accuracy of a model on clean images, and under PGD with 20 steps.

    PGD uses the norm and radius of the training, and comes from an installed library. An image counts as correct under
    PGD if the clean image is classified correctly and a valid example does not fool the model. Invalid results count as
    not correct. In the upper bound of the interval, they count as correct unless the model caused them.

    Returns:
        A dictionary with these keys:

        - "clean": number of correct images, number of images n, accuracy and its 95 % interval.
        - "pgd": the same numbers under PGD. None if PGD failed, or if no installed library has PGD in this norm.
        - "attack": implementation and parameters of PGD, or why PGD failed. "" if no library has PGD.
        - "violations": number of invalid results of PGD, if PGD finished.
        - "kinds": number of images with each invalid reason, if PGD finished.
    """
    logits = classifier.check(data.inputs, data.labels)
    right = logits.argmax(1) == data.labels
    measured: dict[str, Any] = {"clean": _share(right)}
    row = _installed_pgd(settings.norm)
    if row is None:
        return {**measured, "attack": "", "pgd": None}
    rules = ThreatModel(settings.norm, settings.epsilon)  # type: ignore[arg-type] - checked by the settings
    size = 2.5 * settings.epsilon / STEPS
    try:
        result = run_attack(
            row, classifier, data.inputs, data.labels, rules, seed=settings.seed, steps=STEPS, step_size=size
        )
    except DavylampError as error:
        return {**measured, "attack": f"{row}: failed: {error}", "pgd": None}
    attack = f"{row}, {settings.norm} {settings.epsilon:.6g}, {STEPS} steps of {size:.4g}, seed {settings.seed}"
    violated = int(result.invalid.sum())
    faults = zip(result.invalid.tolist(), result.faults, strict=True)
    undecided = sum(bad and fault != "model" for bad, fault in faults)
    kinds = dict(Counter(kind for each in result.violations for kind in each))
    return {
        **measured,
        "attack": attack,
        "pgd": _share(result.robust, undecided=undecided),
        "violations": violated,
        "kinds": kinds,
    }


def environment_versions() -> dict[str, str]:
    """Return the versions of davylamp, torch and Python, which affect the weights of a trained model."""
    return {"davylamp": __version__, "torch": torch.__version__, "python": platform.python_version()}


def describe_measured(measured: Mapping[str, Any]) -> str:
    """Format the result of `measure_model` as text: clean accuracy, and accuracy under PGD."""
    parts = [_line("clean accuracy", measured["clean"])]
    if measured["pgd"]:
        parts.append(_line("under PGD", measured["pgd"]))
    if violated := measured.get("violations"):
        kinds = ", ".join(f"{kind} {count}" for kind, count in measured.get("kinds", {}).items())
        parts.append(f"{violated} of PGD's results are invalid{f' ({kinds})' * bool(kinds)} and count as not robust")
    return ", ".join(parts)


def _line(name: str, share: Mapping[str, Any]) -> str:
    low, high = share["interval"]
    return f"{name} {share['accuracy']:.1%} ({share['right']} of {share['n']}, 95 % interval {low:.1%} to {high:.1%})"


def _share(right: Tensor, undecided: int = 0) -> dict[str, Any]:
    count, n = int(right.sum()), len(right)
    ends = [proportion_interval(count, n)[0], proportion_interval(count + undecided, n)[1]]
    return {"right": count, "n": n, "accuracy": count / n, "interval": ends}


def _installed_pgd(norm: str) -> str | None:
    for name in _PREFERRED:
        row = find_implementation(name)
        if norm in row.classes and find_library(row.library).is_installed:
            return name
    return None
