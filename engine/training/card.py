"""What a trained model can do on images that it was not trained on, and how it came about."""

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

STEPS = 20  # of the PGD that a model is measured with: twice the usual ones of its training
_PREFERRED = ("foolbox:pgd", "torchattacks:pgd", "art:pgd")


def measure_model(classifier: Classifier, data: Data, settings: TrainingSettings) -> dict[str, Any]:
    """Accuracy on clean images, and under a library's PGD of 20 steps with the training's norm and radius.

    An image counts as right under PGD if it is so clean and the attack keeps the rules and fails. Where what came back
    proves nothing it is not, and the upper end of the interval is that of counting it as right.

    Returns:
        "clean" and, where a library is installed that has PGD in this norm, "pgd": right, n, accuracy and its 95 %
        interval; "attack" says which, "violations" how many results prove nothing, "kinds" of which kinds they are.
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
    """Of what the weights depend on."""
    return {"davylamp": __version__, "torch": torch.__version__, "python": platform.python_version()}


def describe_measured(measured: Mapping[str, Any]) -> str:
    """Clean and robust accuracy in a line."""
    parts = [_line("clean accuracy", measured["clean"])]
    if measured["pgd"]:
        parts.append(_line("under PGD", measured["pgd"]))
    if violated := measured.get("violations"):
        kinds = ", ".join(f"{kind} {count}" for kind, count in measured.get("kinds", {}).items())
        parts.append(f"{violated} of PGD's results prove nothing{f' ({kinds})' * bool(kinds)} and count as not robust")
    return ", ".join(parts)


def _line(name: str, share: Mapping[str, Any]) -> str:
    low, high = share["interval"]
    return f"{name} {share['accuracy']:.1%} ({share['right']} of {share['n']}, 95 % interval {low:.1%} to {high:.1%})"


def _share(right: Tensor, undecided: int = 0) -> dict[str, Any]:
    count, n = int(right.sum()), len(right)
    ends = [proportion_interval(count, n)[0], proportion_interval(count + undecided, n)[1]]
    return {"right": count, "n": n, "accuracy": count / n, "interval": ends}


def _installed_pgd(norm: str) -> str | None:
    """The first row of PGD here whose library is installed and that has the norm."""
    for name in _PREFERRED:
        row = find_implementation(name)
        if norm in row.classes and find_library(row.library).is_installed:
            return name
    return None
