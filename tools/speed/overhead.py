"""Measures what an evaluation costs on top of its attacks: planning, clean predictions, judging, metrics, files.

PGD of torchattacks on `demo:efficientnet-lite0`, with the default metrics, divided by the same attack called directly
on the correctly classified images. Both are in seconds of processor of one thread, in turns, so that other programs on
the machine hardly matter. Goals: 1.10 with the 20 embedded images and 40 steps, and 1.05 with 200 images, the same ones
slightly brightened or darkened. With 10 steps, the same overhead is a larger part.

The note has the parts of the overhead, as parts of the attack's time. Judging is the time of the engine's attacks less
that of the library called directly. Planning includes loading the model.

    python -m davylamp.tools.speed.overhead [--quick] [--rounds 3] [--many 200]
"""

import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from davylamp.adapters.data.datasets import Data, load_data
from davylamp.adapters.models.zoo.load import load_model
from davylamp.adapters.running.run import DEFAULT_BATCH_SIZE
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.run import worker
from davylamp.memory import keep_freed_memory
from davylamp.tools.speed.adapters import library_call
from davylamp.tools.speed.figures import SpeedFigure, benchmark_parser, finish, ratio_of

MODEL, LIBRARY = "demo:efficientnet-lite0", "torchattacks"
PARTS = {
    "clean_draws": "clean predictions",
    "probe_model": "probes",
    "attack_shard": "judging",
    "result_table": "metrics",
}


def photos(count: int) -> Data:
    """Return the embedded photos, repeatedly and a little brighter each time if there are fewer than `count`."""
    classifier = load_model(MODEL)
    data = load_data("demo:imagenet", resize=classifier.resize, crop=classifier.crop)
    places = torch.arange(count) % len(data.labels)
    shift = (torch.arange(count) // len(data.labels)).view(-1, 1, 1, 1) / 255
    return Data((data.inputs[places] + shift).clamp(0, 1), data.labels[places], [str(place) for place in range(count)])


def timed(function: Callable[..., Any], name: str, spent: dict[str, float]) -> Callable[..., Any]:
    """Return a function that adds the processor time of its calls to `spent`."""

    def call(*arguments: Any, **keywords: Any) -> Any:
        start = time.process_time()
        try:
            return function(*arguments, **keywords)
        finally:
            spent[name] = spent.get(name, 0.0) + time.process_time() - start

    return call


def evaluate_timed(config: Config) -> dict[str, float]:
    """Plan and evaluate into a temporary folder. Return processor seconds of the parts, and of all as "evaluation".

    Raises:
        RuntimeError: if a run fails.
    """
    spent: dict[str, float] = {}

    def run(folder: str) -> None:
        plan = timed(make_plan, "planning", spent)(config)
        summary = evaluate(plan, ResultsStore(folder))
        if summary.failed:
            raise RuntimeError(f"expected every run to finish, got {summary.failed}")

    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for name, part in PARTS.items():
            stack.enter_context(patch.object(worker, name, timed(getattr(worker, name), part, spent)))
        timed(run, "evaluation", spent)(folder)
    return spent


def measure_overhead(images: int, steps: int, rounds: int, goal: float | None = None) -> SpeedFigure:
    """Measure the processor time of an evaluation, divided by that of its attack, in turns."""
    classifier, data = load_model(MODEL), photos(images)
    right = classifier.check(data.inputs, data.labels).argmax(1) == data.labels
    batches = list(zip(*(each[right].split(DEFAULT_BATCH_SIZE) for each in data[:2]), strict=True))
    parameters = {"steps": steps, "step_size": 1 / 255, "random_start": False}
    attack = AttackChoice(f"{LIBRARY}:pgd", "linf", 4 / 255, parameters=parameters)
    whole, direct, parts = list[float](), list[float](), defaultdict[str, float](float)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(path := Path(folder, "images.npz"), inputs=data.inputs.numpy(), labels=data.labels.numpy())
        config = Config((MODEL,), (attack,), f"npz:{path}")

        def bare() -> None:
            spent: dict[str, float] = {}
            for inputs, labels in batches:
                timed(library_call, "attack", spent)(LIBRARY, classifier, inputs, labels, steps)
            direct.append(spent["attack"])

        def engine() -> None:
            spent = evaluate_timed(config)
            whole.append(spent.pop("evaluation"))
            for name, seconds in spent.items():
                parts[name] += seconds

        for turn in range(rounds):
            for each in (bare, engine) if turn % 2 else (engine, bare):
                each()
    total = sum(direct)
    parts["judging"] -= total
    parts["rest"] = sum(whole) - total - sum(parts.values())
    ranked = sorted(parts.items(), key=lambda part: -part[1])
    shares = ", ".join(f"{name} {seconds / total:.3f}" for name, seconds in ranked)
    note = (
        f"PGD, {steps} steps, {int(right.sum())} of {images} images attacked, {rounds} rounds; of the attack: {shares}"
    )
    name = "processor time of an evaluation"
    return ratio_of(name, whole, direct, peer="its attack, called directly", at_most=goal, note=note)


def main() -> None:
    """Measure everything and print the figures."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds with the embedded images")
    parser.add_argument("--many", type=int, default=200, help="number of images of the last figure, measured once")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as every command and every worker does
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluate_timed(Config((MODEL,), (AttackChoice(f"{LIBRARY}:fgsm", "linf", 4 / 255),), limit=2))  # imports
        sizes = [(20, 10, options.rounds, None), (20, 40, options.rounds, 1.1), (options.many, 40, 1, 1.05)]
        figures = []
        for images, steps, rounds, goal in [(2, 2, 1, 1.1)] if options.quick else sizes:
            figures.append(measure_overhead(images, steps, rounds, goal))
            print(figures[-1], flush=True)
    finish(figures, options.json)


if __name__ == "__main__":
    main()
