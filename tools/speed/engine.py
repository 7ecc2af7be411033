"""Measures the cost of a whole evaluation: overhead over the attacks, two workers, memory, and resuming.

- overhead: wall time of planning and evaluating PGD in three libraries (clean predictions, default metrics, files),
  divided by the sum of the same attacks called directly, alternating (goal <= 1.10 with the 20 embedded images). With
  200 images, the same ones slightly brightened or darkened, it is measured once with one library (goal <= 1.05).
  The rest with all metrics, in seconds of processor where 10 steps on the photos take 7.2: judging the examples, as
  returned and in 8 bits 1.0, attention maps 0.8 (5 passes an image), other metrics 0.5, clean predictions 0.4; and once
  for a model, however many images there are, planning and loading 0.8, probes 1.1. Attention and perceptual metrics are
  no longer default: with one library, 20 photos and one thread, all metrics and the default ones in turns with the
  attack (2026-11-28, seconds of processor) took 1.47 and 1.33 of the attack with 10 steps (5 rounds), and 1.09 and 1.02
  with 40 steps (3 rounds; 1.12 and 1.06 by the fastest of each). 64 digits, 10 steps: 2.60 and 2.50 (9 rounds).
- workers: one process against two on two models, with one torch thread each (goal >= 1.8). The two are timed with their
  start, which imports torch and the libraries, and again after it.
- memory: the largest resident set of an evaluation of FGSM on a small CNN with every metric, at 224 x 224, for growing
  numbers of images (goal: 1000 images in less than 4 GB).
- resume: time to check that a folder has only finished runs, and to load it.

    python -m davylamp.tools.speed.engine [--quick] [--images 20] [--steps 40] [--rounds 2]
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

from davylamp.adapters import Classifier
from davylamp.adapters.data.datasets import load_data
from davylamp.adapters.models.zoo.load import load_model
from davylamp.adapters.running.run import DEFAULT_BATCH_SIZE
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, load, make_plan
from davylamp.engine.run.executor import Executor
from davylamp.engine.run.processes import WorkerPoolExecutor
from davylamp.engine.store.plan_records import list_cells
from davylamp.memory import keep_freed_memory
from davylamp.tools.speed.adapters import LIBRARIES, library_call
from davylamp.tools.speed.figures import SpeedFigure, benchmark_parser, finish, ratio_of

MODEL, OTHER = "demo:efficientnet-lite0", "demo:efficientnet-lite1"
SIDE = 224
FEW, MANY = 8, 200


def seconds(function: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def pgd(steps: int, libraries: Sequence[str] = (*LIBRARIES,)) -> tuple[AttackChoice, ...]:
    """Return the attack of `library_call` as an attack choice for each library."""
    parameters = {"steps": steps, "step_size": 1 / 255, "random_start": False}
    return tuple(AttackChoice(f"{library}:pgd", "linf", 4 / 255, parameters=parameters) for library in libraries)


def run(config: Config, executor: Executor | None = None) -> None:
    """Plan and evaluate into a temporary folder. Raise an error if a run fails."""
    with tempfile.TemporaryDirectory() as folder:
        summary = evaluate(make_plan(config), ResultsStore(folder), executor=executor)
    if summary.failed:
        raise RuntimeError(f"expected every cell to run, got {summary.failed}")


def measure_overhead(images: int, steps: int, rounds: int) -> SpeedFigure:
    """Measure the time of a whole evaluation, divided by that of its attacks."""
    classifier = load_model(MODEL)
    data = load_data("demo:imagenet", limit=images, resize=classifier.resize, crop=classifier.crop)
    return _overhead(classifier, Config((MODEL,), pgd(steps), limit=images), data.inputs, data.labels, rounds, 1.1)


def measure_overhead_of_many(images: int, steps: int) -> SpeedFigure:
    """Measure the overhead with so many images that all shards are full, with one library and one round."""
    classifier = load_model(MODEL)
    data = load_data("demo:imagenet", resize=classifier.resize, crop=classifier.crop)
    places = torch.arange(images) % len(data.labels)
    shift = (torch.arange(images) // len(data.labels)).view(-1, 1, 1, 1) / 255
    inputs, labels = (data.inputs[places] + shift).clamp(0, 1), data.labels[places]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "images.npz")
        np.savez(path, inputs=inputs.numpy(), labels=labels.numpy())
        config = Config((MODEL,), pgd(steps, ["torchattacks"]), f"npz:{path}")
        return _overhead(classifier, config, inputs, labels, 1, 1.05)


def _overhead(
    classifier: Classifier, config: Config, inputs: torch.Tensor, labels: torch.Tensor, rounds: int, goal: float
) -> SpeedFigure:
    """Time an evaluation, and its attacks called directly on the correctly classified images, in turns.

    Both call a library with the same number of images. Smaller batches cost more per image, and much larger ones exceed
    the caches.
    """
    given, right = len(labels), classifier.check(inputs, labels).argmax(1) == labels
    inputs, labels = inputs[right], labels[right]
    libraries = [str(choice.attack).partition(":")[0] for choice in config.attacks]
    steps = config.attacks[0].parameters["steps"]

    def bare() -> None:
        for library in libraries:
            for images, truth in zip(*(each.split(DEFAULT_BATCH_SIZE) for each in (inputs, labels)), strict=True):
                library_call(library, classifier, images, truth, steps)

    if rounds > 1:
        bare()
    whole, direct = [], []
    for turn in range(rounds):
        for is_whole in (True, False) if turn % 2 else (False, True):
            (whole if is_whole else direct).append(seconds(lambda: run(config)) if is_whole else seconds(bare))
    note = f"PGD, {steps} steps, {len(labels)} of {given} images attacked, {torch.get_num_threads()} threads"
    print(f"overhead: evaluation {statistics.median(whole):.1f} s, bare attacks {statistics.median(direct):.1f} s")
    return ratio_of(
        "time of an evaluation", whole, direct, peer="its attacks, called directly", at_most=goal, note=note
    )


def measure_workers(images: int, steps: int) -> list[SpeedFigure]:
    """Time one process and two, with one thread each, on two models. Shards are small enough to be shared."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    config = Config((MODEL, OTHER), pgd(steps), limit=images, shard_size=max(1, images // 4))
    one = seconds(lambda: run(config))
    with patch("os.cpu_count", return_value=2):
        start = time.perf_counter()
        workers = WorkerPoolExecutor(2)
        run(config, workers)
        two = time.perf_counter() - start
        again = seconds(lambda: run(config, workers))
    torch.set_num_threads(threads)
    print(f"workers: one {one:.1f} s, two {two:.1f} s with their start, {again:.1f} s once started")
    note = f"{os.cpu_count()} cores, {one:.0f} s of work for one"
    return [
        SpeedFigure("speed of two workers and their start", one / two, peer="one", at_least=1.8, note=note),
        SpeedFigure("speed of two workers once started", one / again, peer="one", at_least=1.8, note=note),
    ]


def small_cnn() -> nn.Module:
    """Return a CNN with ten classes and few channels, so that images take more memory than the model."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 8, 7, 4), nn.ReLU(), nn.Conv2d(8, 16, 5, 4), nn.ReLU(), nn.Flatten(), nn.Linear(2704, 10)
        )


def write_images(path: Path, count: int) -> None:
    """Write random 8-bit images."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (count, 3, SIDE, SIDE), dtype=np.uint8)
    np.savez(path, inputs=images, labels=generator.integers(0, 10, count))


def peak_memory() -> int:
    """Return the largest resident set of this process in MB.

    `getrusage` would include the parent's size before the fork.
    """
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024


def measure_memory(data: str) -> None:
    """Measure MB resident before and at most, and seconds. Must run in a separate process."""
    torch.set_num_threads(1)
    before = peak_memory()
    config = Config((f"{__file__}:small_cnn",), (AttackChoice("torchattacks:fgsm", "linf", 4 / 255),), f"npz:{data}")
    spent = seconds(lambda: run(config))
    print(before, peak_memory(), round(spent))


def measure_memory_of(counts: tuple[int, ...]) -> SpeedFigure:
    """Measure the largest resident set for several numbers of images."""
    peaks = []
    with tempfile.TemporaryDirectory() as folder:
        for count in counts:
            data = Path(folder, f"{count}.npz")
            write_images(data, count)
            command = [sys.executable, __file__, "--memory-of", str(data)]
            before, most, spent = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            print(f"memory: {count} images: {most} MB at most, {before} MB of them libraries; {spent} s", flush=True)
            peaks.append(int(most))
    grown = ", ".join(f"{count}: {peak} MB" for count, peak in zip(counts, peaks, strict=True))
    note = f"images of 224 x 224: {grown}"
    return SpeedFigure(f"memory of an evaluation of {counts[-1]} images", peaks[-1] / 1024, "GB", at_most=4, note=note)


def measure_resume(cells: int) -> SpeedFigure:
    """Measure how long it takes to check and load a folder of finished runs."""
    attack = AttackChoice("torchattacks:fgsm", "linf", 4 / 255)
    with tempfile.TemporaryDirectory() as folder:
        data, results = Path(folder, "images.npz"), Path(folder, "results")
        write_images(data, 4)
        config = Config(
            (f"{__file__}:small_cnn",), (attack,), f"npz:{data}", seeds=tuple(range(cells)), measures=("effect",)
        )
        first = seconds(lambda: evaluate(make_plan(config), ResultsStore(results)))
        plan = make_plan(config)
        again = seconds(lambda: evaluate(plan, ResultsStore(results)))
        listed, loaded = seconds(lambda: list_cells(results)), seconds(lambda: load(results))
    print(
        f"resume: {cells} finished cells: {again:.2f} s to see that nothing is left, {listed:.2f} s to list, "
        f"{loaded:.2f} s to load; running them took {first:.0f} s"
    )
    return SpeedFigure(
        f"time to see that nothing is left of {cells} cells", again, "s", note=f"loaded in {loaded:.1f} s"
    )


def main() -> None:
    """Measure everything and print the figures."""
    parser = benchmark_parser(__doc__)
    parser.add_argument(
        "--images", type=int, default=20, help="number of images for the overhead, which is also measured with 200"
    )
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--memory-of", help="(internal) run in a process of its own")
    options = parser.parse_args()
    keep_freed_memory()  # as every command and every worker does
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if options.memory_of:
            measure_memory(options.memory_of)
            return
        images, steps, rounds = (2, 2, 1) if options.quick else (options.images, options.steps, options.rounds)
        few = min(images, FEW)
        figures = [measure_overhead(images, steps, rounds)]
        figures.append(measure_overhead_of_many(4 if options.quick else MANY, steps))
        figures += measure_workers(few, steps)
        if sys.platform == "linux":
            figures.append(measure_memory_of((20, 60) if options.quick else (100, 300, 1000)))
        figures.append(measure_resume(10 if options.quick else 300))
    finish(figures, options.json)


if __name__ == "__main__":
    main()
