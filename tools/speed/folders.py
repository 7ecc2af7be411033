"""What the commands that read a results folder take of a large one: seconds and memory, at two sizes.

As many cells as RobustBench has entries (200 models x 5 attacks x 10 000 images of ten classes), and as CANARY has (15
models x 20 attacks x 1000 images of a thousand classes). The records are synthetic (`synthetic_results`), of the
columns and types of real ones, and written first, which is not timed; pictures are few and shared. Each command is a
process of its own, as a user starts it: seconds are wall time from its start to its end, with its processor time
beside, memory is the largest resident set.

    python -m davylamp.tools.speed.folders [--quick] [--sizes robustbench canary]
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from davylamp.tools.speed.figures import SpeedFigure, benchmark_parser, finish
from davylamp.tools.speed.synthetic_results import STANDARD, TWENTY, write_results

MEMORY = 4  # GB that a command may take


class FolderSize(NamedTuple):
    """A folder, and the seconds that each command may take of it."""

    models: int
    attacks: tuple[str, ...]
    images: int
    classes: int
    side: int
    goals: Mapping[str, float | None]

    def __str__(self) -> str:
        return f"{self.models} models x {len(self.attacks)} attacks x {self.images} images"


SIZES = {
    "robustbench": FolderSize(200, STANDARD, 10_000, 10, 32, {"status": 3, "table": 60, "rank": 60, "report": 120}),
    "canary": FolderSize(15, TWENTY, 1000, 1000, 224, {"status": None, "table": 5, "rank": None, "report": 10}),
}
COMMANDS: Mapping[str, Sequence[str]] = {
    "status": ("status", "results"),
    "table": ("table", "results"),
    "rank": ("rank", "results", "--method", "mean"),
    "report": ("report", "results", "-o", "report.html"),
}


class Cost(NamedTuple):
    """What one command took: wall seconds, processor seconds, GB resident at most."""

    seconds: float
    processor: float
    memory: float


def write_folder(path: Path, size: FolderSize) -> None:
    """The folder; without waiting for the disk, as nothing of it has to survive."""
    names = [f"model-{place:03d}" for place in range(size.models)]
    with patch("os.fsync", lambda _: None):
        write_results(
            path,
            models=names,
            attacks=size.attacks,
            images=size.images,
            classes=size.classes,
            side=size.side,
            pooled=True,
        )


def cost_of(arguments: Sequence[str], folder: Path) -> Cost:
    """Run a command in a process of its own.

    Raises:
        RuntimeError: if it fails.
    """
    start = time.perf_counter()
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            [sys.executable, "-m", "davylamp.cli", *arguments], cwd=folder, stdout=printed, stderr=printed
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - start
        if process.returncode:
            printed.seek(0)
            raise RuntimeError(f"davylamp {' '.join(arguments)}: {printed.read().decode()[-500:]}")
    largest = usage.ru_maxrss / (2**30 if sys.platform == "darwin" else 2**20)
    return Cost(seconds, usage.ru_utime + usage.ru_stime, largest)


def measure(size: FolderSize, folder: Path) -> list[SpeedFigure]:
    """Every command on a folder of this size, each once; the largest memory of all of them."""
    start = time.perf_counter()
    write_folder(folder / "results", size)
    weight = sum(file.stat().st_size for file in (folder / "results").rglob("*.parquet")) / 1e9
    print(f"{size}: {weight:.2f} GB, written in {time.perf_counter() - start:.0f} s", flush=True)
    figures, costs = [], {}
    for name, arguments in COMMANDS.items():
        costs[name] = cost = cost_of(arguments, folder)
        shown = " ".join(["davylamp", *(part for part in arguments if part not in ("results", "-o", "report.html"))])
        note = f"{cost.processor:.1f} s of processor, {cost.memory:.2f} GB"
        goal = size.goals[name]
        figures.append(SpeedFigure(f"time of `{shown}`, {size}", cost.seconds, "s", at_most=goal, note=note))
        print(figures[-1], flush=True)
    name = max(costs, key=lambda each: costs[each].memory)
    most = costs[name].memory
    figures.append(
        SpeedFigure(f"largest memory, {size}", most, "GB", at_most=MEMORY, note=f"{name}; {weight:.2f} GB on disk")
    )
    return figures


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--sizes", nargs="+", choices=[*SIZES], default=[*SIZES])
    options = parser.parse_args()
    figures = []
    for name in options.sizes:
        size = SIZES[name]
        if options.quick:
            size = size._replace(models=3, attacks=size.attacks[:3], images=20, classes=10, side=32)
        with tempfile.TemporaryDirectory() as folder:
            figures += measure(size, Path(folder))
    finish(figures, options.json)


if __name__ == "__main__":
    main()
