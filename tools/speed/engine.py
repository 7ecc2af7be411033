"""Measures whole evaluations: two workers, memory, and resuming. `overhead` compares them with their attacks.

- workers: one process against two on two models, with one torch thread each (goal >= 1.8). The two are timed with their
  start, which imports torch and the libraries, and again after it.
- memory: the largest resident set of an evaluation of FGSM on a small CNN with every metric, at 224 x 224, for growing
  numbers of images (goal: 1000 images in less than 4 GB).
- resume: time to check that a folder has only finished runs, and to load it.

    python -m davylamp.tools.speed.engine [--quick] [--images 8] [--steps 40]
"""

import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, load, make_plan
from davylamp.engine.run.executor import Executor
from davylamp.engine.run.processes import WorkerPoolExecutor
from davylamp.engine.store.plan_records import list_cells
from davylamp.memory import keep_freed_memory
from davylamp.tools.speed.adapters import LIBRARIES
from davylamp.tools.speed.figures import SpeedFigure, benchmark_parser, finish

MODEL, OTHER = "demo:efficientnet-lite0", "demo:efficientnet-lite1"
SIDE = 224


def seconds(function: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def pgd(steps: int) -> tuple[AttackChoice, ...]:
    """Return the attack of `adapters.library_call` as an attack choice for each library."""
    parameters = {"steps": steps, "step_size": 1 / 255, "random_start": False}
    return tuple(AttackChoice(f"{library}:pgd", "linf", 4 / 255, parameters=parameters) for library in LIBRARIES)


def run(config: Config, executor: Executor | None = None) -> None:
    """Plan and evaluate into a temporary folder. Raise an error if a run fails."""
    with tempfile.TemporaryDirectory() as folder:
        summary = evaluate(make_plan(config), ResultsStore(folder), executor=executor)
    if summary.failed:
        raise RuntimeError(f"expected every cell to run, got {summary.failed}")


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
    parser.add_argument("--images", type=int, default=8, help="number of images for the workers")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--memory-of", help="(internal) run in a process of its own")
    options = parser.parse_args()
    keep_freed_memory()  # as every command and every worker does
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if options.memory_of:
            measure_memory(options.memory_of)
            return
        images, steps = (2, 2) if options.quick else (options.images, options.steps)
        figures = measure_workers(images, steps)
        if sys.platform == "linux":
            figures.append(measure_memory_of((20, 60) if options.quick else (100, 300, 1000)))
        figures.append(measure_resume(10 if options.quick else 300))
    finish(figures, options.json)


if __name__ == "__main__":
    main()
