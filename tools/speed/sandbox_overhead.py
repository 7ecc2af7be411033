"""Measures the overhead of a model process: PGD on a model in a separate process and in this process, in turns.

The models are the embedded EfficientNet-Lite0 on 20 photos with 10 steps, and a small CNN on images of 16 x 16, for
which communication is most of the work. Both processes must return identical images. The seconds until a model process
responds are also measured: for the first one, which loads torch, and for another one.

Run: python -m davylamp.tools.speed.sandbox_overhead [--quick] [--rounds 5] [--threads 1] [--json FILE]
"""

import statistics
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.data.datasets import load_data
from davylamp.adapters.models.sandbox.bubblewrap import find_sandbox
from davylamp.adapters.models.sandbox.isolated import load_isolated
from davylamp.adapters.models.sandbox.isolation import Isolation
from davylamp.adapters.models.zoo.load import load_model
from davylamp.memory import keep_freed_memory
from davylamp.tools.speed.figures import SpeedFigure, benchmark_parser, finish, ratio_of

RULES = ThreatModel("linf", 4 / 255)
STEPS = 10


def lite() -> Classifier:
    """Return the embedded model, loaded as from a user's file."""
    return load_model("demo:efficientnet-lite0")


def small() -> nn.Module:
    """Return a small CNN for digits, with random weights."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, 10))


def main(arguments: list[str] | None = None) -> None:
    """Measure everything and print four lines."""
    parser = benchmark_parser("Overhead of a model process.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    keep_freed_memory()  # as every command does, and every room
    rounds, images = (1, 2) if options.quick else (options.rounds, 20)
    start = time.perf_counter()
    load_isolated(_name("small"), "cpu", Isolation("yes"))
    first = time.perf_counter() - start
    start = time.perf_counter()
    load_isolated(_name("small"), "cpu", Isolation("yes"))
    another = time.perf_counter() - start
    where = "in a sandbox" if find_sandbox().program else "without a sandbox"
    photos = load_data("demo:imagenet", resize=256, crop=224).inputs[:images]
    noise = torch.rand(images, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    figures = [
        compare_pgd("lite", photos, rounds, f"{where}, {options.threads} threads", at_most=1.03),
        compare_pgd("small", noise, rounds, f"{where}, {options.threads} threads"),
        SpeedFigure("time until the first model process responds", first, "s", note=where),
        SpeedFigure("time until another model process responds", another, "s", note=where),
    ]
    finish(figures, options.json)


def compare_pgd(factory: str, inputs: Tensor, rounds: int, note: str, at_most: float | None = None) -> SpeedFigure:
    """Time PGD in a model process and in this process, on the model's own labels.

    Raises:
        AssertionError: If the results differ.
    """
    name = _name(factory)
    here, apart = load_model(name), load_isolated(name, "cpu", Isolation("yes"))
    labels = here.predict_logits(inputs).argmax(1)
    spent: dict[Classifier, list[float]] = {here: [], apart: []}
    results = {}
    for turn in range(rounds + 1):  # the first warms up
        for model in (here, apart) if turn % 2 else (apart, here):
            start = time.perf_counter()
            results[model] = run_attack("foolbox:pgd", model, inputs, labels, RULES, steps=STEPS).adv_inputs
            if turn:
                spent[model].append(time.perf_counter() - start)
    if not torch.equal(results[here], results[apart]):
        raise AssertionError(f"{factory}: expected the same examples in a model process, got different ones")
    seconds = f"{statistics.median(spent[here]):.3g} s in process, {len(inputs)} images, {STEPS} steps, {rounds} rounds"
    title = {"lite": "efficientnet-lite0", "small": "a small CNN"}[factory]
    return ratio_of(
        f"PGD on {title} in a model process",
        spent[apart],
        spent[here],
        peer="in process",
        at_most=at_most,
        note=f"{seconds}, {note}",
    )


def _name(factory: str) -> str:
    return f"{Path(__file__).resolve()}:{factory}"


if __name__ == "__main__":
    main()
