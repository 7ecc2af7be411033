"""Measures the gain of stopping at the first success: `--order cheap-first --stop-when-fooled`.

The same attacks under one threat model are run twice: each on every image, as a table of attacks needs it, and then the
cheapest first, each on the images that the previous attacks did not fool. The figure is the number of passes (forwards
and backwards, all images) of the first divided by that of the second. The worst case of every image must be the same,
otherwise an error is raised. The attacks on the digits use no random numbers, which would change with the batch. Passes
are counted, so a busy machine has no effect. The gain depends on how many images are fooled: on a robust model, nearly
every attack must run on nearly every image.

    python -m davylamp.tools.speed.worst_case [--quick] [--images 100] [--large 12]
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from davylamp.adapters import Classifier
from davylamp.adapters.data.datasets import Data
from davylamp.benchmarks.shared.small_models import EPSILON as DIGITS
from davylamp.benchmarks.shared.small_models import load_digits_data, load_small_model
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.store.results import RunResult, read_outcomes
from davylamp.tools.speed.figures import SpeedFigure, benchmark_parser, finish

ATTACKS: Mapping[str, Mapping[str, Any]] = {
    "torchattacks:fgsm": {},
    "torchattacks:pgd": {"random_start": False},
}
DRAWING: Mapping[str, Mapping[str, Any]] = {"torchattacks:apgd-ce": {}}
DRAWING_NOTHING: Mapping[str, Mapping[str, Any]] = {"torchattacks:mi-fgsm": {}, "foolbox:deepfool": {}}
FEW = 20  # passes an image of a quick run, at most


class AskedCase(NamedTuple):
    """A model with its images, a radius, and attacks. If model and images are None, they are loaded by name."""

    name: str
    epsilon: float
    attacks: Mapping[str, Mapping[str, Any]]
    images: int
    model: Classifier | None = None
    data: Data | None = None


class WorstCaseCost(NamedTuple):
    """Result of an evaluation: which of the attacked images no attack fooled, shape (N,), and the number of passes."""

    robust: np.ndarray
    attacked: np.ndarray
    passes: int


def run(case: AskedCase, *, stop: bool, quick: bool) -> WorstCaseCost:
    """Evaluate the attacks on all images, or until one of them succeeds."""
    fewer = {"max_queries": FEW} if quick else {}
    choices = tuple(
        AttackChoice(name, "linf", case.epsilon, parameters={**given, **fewer}) for name, given in case.attacks.items()
    )
    how: dict[str, Any] = {"order": "cheap-first" if stop else "given", "stop_when_fooled": stop}
    config = Config((case.name,), choices, limit=case.images, measures=("effect", "cost"), **how)
    models = None if case.model is None else {case.name: case.model}
    with tempfile.TemporaryDirectory() as folder:
        summary = evaluate(make_plan(config, models=models, data=case.data), ResultsStore(folder))
        if summary.failed:
            raise RuntimeError(f"expected every cell to run, got {summary.failed}")
        outcomes = read_outcomes(Path(folder), []).done
        robust = np.logical_and.reduce([outcome.columns["robust"] for outcome in outcomes])
        return WorstCaseCost(robust, outcomes[0].columns["attacked"], sum(map(_passes, outcomes)))


def measure(case: AskedCase, *, quick: bool) -> SpeedFigure:
    """Return passes on all images divided by passes until a success. The worst case must be the same.

    Raises:
        RuntimeError: If the worst cases differ.
    """
    full, stopped = (run(case, stop=stop, quick=quick) for stop in (False, True))
    if not np.array_equal(full.robust, stopped.robust):
        raise RuntimeError(
            f"expected the same worst case on {case.name}, got {full.robust.sum()} and {stopped.robust.sum()} robust "
            f"images of {len(full.robust)}"
        )
    robust, attacked = int(full.robust.sum()), int(full.attacked.sum())
    note = (
        f"{full.passes} against {stopped.passes} passes; robust accuracy {robust} of {len(full.robust)} images in both "
        f"({attacked} attacked), linf {case.epsilon:.3g}, {', '.join(case.attacks)}"
    )
    return SpeedFigure(
        f"passes of a worst case, {case.name}", full.passes / stopped.passes, peer="every attack in full", note=note
    )


def _passes(outcome: RunResult) -> int:
    return int(outcome.columns["forwards"].sum() + outcome.columns["backwards"].sum())


def main() -> None:
    """Print a line for each model."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--images", type=int, default=100, help="number of images of the digits")
    parser.add_argument("--large", type=int, default=12, help="number of images of ImageNet")
    options = parser.parse_args()
    images, large = (8, 2) if options.quick else (options.images, options.large)
    cases = [AskedCase("demo:efficientnet-lite0", 0.5 / 255, {**ATTACKS, **DRAWING}, large)]
    cases += [
        AskedCase(
            f"digits:{name}",
            DIGITS,
            {**ATTACKS, **DRAWING_NOTHING},
            images,
            load_small_model(name),
            load_digits_data(images),
        )
        for name in ("standard", "pgd-training")
    ]
    finish([measure(case, quick=options.quick) for case in cases], options.json)


if __name__ == "__main__":
    main()
