"""Measures davylamp's attacks: distances, queries and images per second. Authors' programs are compared if available.

The models are the undefended CNN of digits (3 x 32 x 32) and, with --large, the embedded EfficientNet-Lite0. An
author's program is run from a checkout that an option names, on the same images, with the same budget and starting
points. Nothing is downloaded. docs/davylamp-attacks.md has the results.

Run: python -m davylamp.tools.speed.attacks [--quick] [--large] [--rays FOLDER] [--nattack FOLDER]
     [--qeba FOLDER] [--json FILE]
"""

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.data.datasets import Data, load_data_for
from davylamp.adapters.models.zoo.load import load_model
from davylamp.adapters.threat_model import Norm
from davylamp.benchmarks.shared.small_models import load_digits_data, load_small_model
from davylamp.tools.speed.figures import SpeedFigure, benchmark_parser, finish
from davylamp.tools.speed.programs import PROGRAMS

LARGE = "demo:efficientnet-lite0"
MOST = 1000  # passes of an image there


class Budgeted(NamedTuple):
    """Setting of a measurement: threat model and budget, full and quick."""

    norm: Norm
    epsilon: float | None
    parameters: Mapping[str, Any]
    quick: Mapping[str, Any] = {}


SETTINGS: Mapping[str, Budgeted] = {
    "rays": Budgeted("linf", None, {"max_queries": 500}, {"max_queries": 40}),
    "surfree": Budgeted("l2", None, {"max_queries": 1000}, {"max_queries": 60}),
    "qeba": Budgeted("l2", None, {"max_queries": 1000}, {"max_queries": 150}),
    "nattack": Budgeted("linf", 0.15, {"steps": 30, "samples": 200}, {"steps": 2, "samples": 20}),
    "lsa": Budgeted("l0", None, {"steps": 80}, {"steps": 3}),
    "bp": Budgeted("l2", None, {"steps": 100}, {"steps": 10}),
    "lbfgs": Budgeted("l2", None, {"steps": 50, "binary_search_steps": 10}, {"steps": 5, "binary_search_steps": 2}),
    "si-fgsm": Budgeted("linf", 0.1, {"steps": 10, "step_size": 0.02, "scales": 5}, {"steps": 2, "scales": 2}),
    "ssah": Budgeted("unrestricted", None, {"steps": 150, "learning_rate": 0.01}, {"steps": 3}),
}


def main(arguments: list[str] | None = None) -> None:
    """Measure the attacks, print the figures, and write them."""
    parser = benchmark_parser("davylamp's attacks, and the programs of their authors.")
    parser.add_argument("--large", action="store_true", help=f"also run on {LARGE}, with up to {MOST} passes per image")
    parser.add_argument("--images", type=int, help="number of images of the digits")
    for name in PROGRAMS:
        parser.add_argument(f"--{name}", type=Path, metavar="FOLDER", help="checkout of the authors' program")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    digits = _right(load_small_model("standard"), load_digits_data(options.images or (4 if options.quick else 40)))
    cases = [("digits", digits)]
    if options.large:
        large = load_model(LARGE)
        cases.append((LARGE, _right(large, load_data_for(large, "demo:imagenet", 2 if options.quick else 3))))
    figures = []
    for name, case in cases:
        for attack, setting in SETTINGS.items():
            folder = None if name == LARGE else getattr(options, attack, None)
            given = {**setting.parameters, **(setting.quick if options.quick else {})}
            if name == LARGE:
                given["max_queries"] = min(given.get("max_queries", MOST), MOST)
            figures += measure(attack, setting, case, name, given=given, folder=folder)
    finish(figures, options.json)


class Victim(NamedTuple):
    """A model with images that it classifies correctly."""

    model: Classifier
    inputs: Tensor
    labels: Tensor


def _right(model: Classifier, data: Data) -> Victim:
    right = model.predict_logits(data.inputs).argmax(1).cpu() == data.labels
    return Victim(model, data.inputs[right], data.labels[right])


def measure(
    attack: str, setting: Budgeted, case: Victim, name: str, *, given: Mapping[str, Any], folder: Path | None = None
) -> list[SpeedFigure]:
    """Measure the distance and cost of an attack on a model, and of its authors' program if there is a checkout.

    Args:
        attack: key of `SETTINGS`.
        setting: threat model and budget.
        case: attacked model and images.
        name: name of the model in the figures.
        given: parameters of the attack.
        folder: folder of the checkout. None without one.
    """
    start = time.perf_counter()
    result = run_attack(f"davylamp:{attack}", *case, ThreatModel(setting.norm, setting.epsilon), **given)
    seconds = time.perf_counter() - start
    passes = (result.forwards + result.backwards).double().median()
    label = f"{attack} on {name}, {len(case.labels)} images, " + ", ".join(f"{k} {v}" for k, v in given.items())
    figures = [
        SpeedFigure(f"{label}: fooled", float(result.success.double().mean()), ""),
        SpeedFigure(f"{label}: median passes of an image", float(passes), ""),
        SpeedFigure(f"{label}: images a second", len(case.labels) / seconds, "/s"),
    ]
    if setting.epsilon is None and setting.norm != "unrestricted":
        sizes = result.distance[result.success]
        figures.insert(1, _median(f"{label}: median {setting.norm} distance", sizes))
    return figures + ([] if folder is None else _beside(attack, setting, case, given, folder, label))


def _beside(
    attack: str, setting: Budgeted, case: Victim, given: Mapping[str, Any], folder: Path, label: str
) -> list[SpeedFigure]:
    """Measure the authors' program. If starting points matter, run davylamp's attack again from the same ones."""
    words = dict(given)
    if setting.epsilon is not None:
        words["epsilon"] = setting.epsilon
    if attack == "qeba":
        words["starting_points"] = _other_classes(case)
    start = time.perf_counter()
    theirs = PROGRAMS[attack](folder, case.model, case.inputs, case.labels, **words)
    seconds = time.perf_counter() - start
    figures = []
    if "starting_points" in words:
        from davylamp.adapters.libraries.davylamp.qeba import qeba

        torch.manual_seed(0)
        figures += _reached(f"{label}: davylamp's, from images of other classes", setting, case, qeba(*case, **words))
    figures += _reached(f"{label}: the program's", setting, case, theirs)
    return [*figures, SpeedFigure(f"{label}: the program's images a second", len(case.labels) / seconds, "/s")]


def _reached(label: str, setting: Budgeted, case: Victim, images: Tensor) -> list[SpeedFigure]:
    with torch.no_grad():
        fooled = case.model.predict_logits(images).argmax(1) != case.labels
    change = (images - case.inputs).flatten(1)
    if setting.epsilon is not None:
        fooled &= change.abs().amax(1) <= setting.epsilon * (1 + 1e-4)
    figures = [SpeedFigure(f"{label} fooled", float(fooled.double().mean()), "")]
    if setting.epsilon is None:
        sizes = change.abs().amax(1) if setting.norm == "linf" else change.norm(dim=1)
        figures.append(_median(f"{label} median {setting.norm} distance", sizes[fooled]))
    return figures


def _median(name: str, sizes: Tensor) -> SpeedFigure:
    if not len(sizes):
        return SpeedFigure(name, math.nan, "", note="no image is fooled")
    return SpeedFigure(name, float(sizes.median()), "")


def _other_classes(case: Victim) -> Tensor:
    """Return for each image an image of a different class."""
    return case.inputs[torch.stack([(case.labels != label).nonzero()[0, 0] for label in case.labels])]


if __name__ == "__main__":
    main()
