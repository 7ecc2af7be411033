"""Measures davylamp's overhead over a library: PGD called directly, with query counting, and through `run_attack`.

All ways use the same images, parameters and batch. They alternate within every round, so that a busy machine slows all
of them. Each figure is the median over the rounds of the ratio to the direct call of the same round, with its
interquartile range. "passes" is the cost of the judge's three forward passes alone. "counted" is the library on the
counting wrapper (goal <= 1.03). "budget" is the same with a `max_queries` that is never reached, so that the best
example is stored at every query. It is timed only on request. "run_attack" is the whole function: checks, the judge's
three forward passes, and distances (goal <= 1.03 for 40 steps, PGD's default).

    python -m davylamp.tools.speed.adapters [--quick] [--images 4] [--steps 40] [--rounds 8] [--budget]
"""

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from davylamp.adapters import Classifier, QueryCounter, ThreatModel, run_attack
from davylamp.adapters.catalogue.lookup import find_implementation, load_class
from davylamp.adapters.data.datasets import load_data
from davylamp.adapters.libraries.art import driver as art
from davylamp.adapters.libraries.foolbox import driver as foolbox
from davylamp.adapters.libraries.torchattacks import driver as torchattacks
from davylamp.adapters.models.zoo.load import load_model
from davylamp.memory import keep_freed_memory
from davylamp.tools.speed.figures import SpeedFigure, benchmark_parser, finish, ratio_of

THREAT = ThreatModel("linf", 4 / 255)
JUDGED = 3  # forward passes of `run_attack` itself: over clean images, examples, and these on 8 bits
LIBRARIES = {"art": art, "foolbox": foolbox, "torchattacks": torchattacks}


def library_call(library: str, model: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor, steps: int) -> None:
    """Call the library's PGD on any module, with the arguments that davylamp uses."""
    row = find_implementation(f"{library}:pgd")
    parameters = {"steps": steps, "step_size": 1 / 255, "random_start": False}
    words = {row.params[name]: value for name, value in parameters.items()}
    LIBRARIES[library].run(load_class(row, "linf"), model, inputs, labels, THREAT, **words)


def ways(library: str, classifier: Classifier, inputs: torch.Tensor, labels: torch.Tensor, steps: int) -> dict:
    """Return each way of running the attack, as a function without arguments."""

    def counted(budget: torch.Tensor | None = None) -> None:
        counter = QueryCounter(classifier, inputs, labels, THREAT, max_queries=budget)
        library_call(library, counter, inputs, labels, steps)

    def passes() -> None:
        for _ in range(JUDGED):
            classifier.predict_logits(inputs)

    return {
        "raw": lambda: library_call(library, classifier, inputs, labels, steps),
        "passes": passes,
        "counted": counted,
        "budget": lambda: counted(torch.full((len(inputs),), 10**6)),
        "run_attack": lambda: run_attack(
            f"{library}:pgd", classifier, inputs, labels, THREAT, steps=steps, step_size=1 / 255, random_start=False
        ),
    }


def seconds(function) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def tracking_seconds(inputs: torch.Tensor, labels: torch.Tensor, calls: int = 2000) -> float:
    """Return the time that counting adds to a forward and backward pass, measured on a model of negligible cost."""
    tiny = Classifier(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 4)))
    small, few = inputs[:, :, :4, :4].clone().requires_grad_(), labels % 4

    def passes(model: torch.nn.Module) -> float:
        return seconds(lambda: [model(small).sum().backward() for _ in range(calls)]) / calls

    passes(tiny)
    costs = [passes(QueryCounter(tiny, small, few, THREAT)) - passes(tiny) for _ in range(5)]
    return statistics.median(costs)


def pass_seconds(classifier: Classifier, inputs: torch.Tensor) -> float:
    """Return the time of a forward and backward pass of the real model on one image."""
    image = inputs[:1].clone().requires_grad_()
    return statistics.median(seconds(lambda: classifier(image).sum().backward()) for _ in range(9))


def main() -> None:
    """Print the cost of counting, then one line per library and way."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--budget", action="store_true", help="also time a budget that is never reached")
    options = parser.parse_args()
    images, steps, rounds = (1, 1, 2) if options.quick else (options.images, options.steps, options.rounds)
    keep_freed_memory()  # for all ways, as every command does: without it the page faults of each way are its luck
    classifier = load_model("demo:efficientnet-lite0")
    data = load_data("demo:imagenet", resize=classifier.resize, crop=classifier.crop)
    logits = classifier.check(data.inputs, data.labels)
    right = (logits.argmax(1) == data.labels).nonzero()[:images, 0]
    inputs, labels = data.inputs[right], data.labels[right]
    tracking, real = tracking_seconds(inputs, labels), pass_seconds(classifier, inputs)
    print(
        f"counting costs {tracking * 1e6:.0f} us a pass; a real pass takes {real * 1e3:.0f} ms: {tracking / real:.2%}"
    )
    print(
        f"PGD, {steps} steps, {images} images, efficientnet-lite0, {torch.get_num_threads()} threads, {rounds} rounds"
    )
    print(f"{'library':14}{'way':12}{'median s':>10}{'ratio':>8}  middle half")
    figures = [
        SpeedFigure("counting, per forward and backward pass", tracking / real, "of the pass", peer="doing without")
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for library in LIBRARIES:
            functions = ways(library, classifier, inputs, labels, steps)
            figures += measure(library, functions if options.budget else _without_budget(functions), rounds)
    finish(figures, options.json)


def _without_budget(functions: dict[str, Callable[[], None]]) -> dict[str, Callable[[], None]]:
    return {name: function for name, function in functions.items() if name != "budget"}


def measure(library: str, functions: dict[str, Callable[[], None]], rounds: int) -> list[SpeedFigure]:
    """Time the ways of running a library's PGD in turns, and print a line for each.

    Returns:
        The figures that have a goal.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    functions["raw"]()
    for turn in range(rounds):
        for name in functions if turn % 2 else reversed(functions):
            times[name].append(seconds(functions[name]))
    titles = {"counted": "time with query tracking", "run_attack": "time with the whole of run_attack"}
    titles["passes"] = f"time of {JUDGED} forward passes alone, as many as run_attack needs to judge"
    figures = []
    for name, spent in times.items():
        settings: dict[str, Any] = {"peer": f"{library}, called directly", "note": "PGD"}
        if name != "passes":
            settings["at_most"] = 1.03
        ratio = ratio_of(titles.get(name, f"time with {name}"), spent, times["raw"], **settings)
        spread = f"{ratio.low:.3f} - {ratio.high:.3f}"
        print(f"{library:14}{name:12}{statistics.median(spent):10.2f}{ratio.value:8.3f}  {spread}")
        figures += [ratio] if name in titles else []
    return figures


if __name__ == "__main__":
    main()
