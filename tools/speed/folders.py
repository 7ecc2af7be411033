"""Measures seconds and memory of the commands that read a results folder, for two large folders.

One folder has as many runs as RobustBench has entries (200 models x 5 attacks x 10 000 images of ten classes). The
other has as many as CANARY (15 models x 20 attacks x 1000 images of a thousand classes). The records are synthetic (see
`synthetic_results`), with the columns and types of real ones, and few, shared pictures. They are written first, which
is not timed. Each command runs in a separate process, as for a user. Seconds are wall time of the process, together
with its processor time. Memory is its largest resident set.

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
    """Size of a folder, and the goal in seconds for each command."""

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
    """Cost of one command: wall seconds, processor seconds, largest resident GB."""

    seconds: float
    processor: float
    memory: float


def write_folder(path: Path, size: FolderSize) -> None:
    """Write the folder without waiting for the disk, because it need not survive a crash."""
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
    """Run a command in a separate process, and return its cost.

    Raises:
        RuntimeError: If the command fails.
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
    """Run every command once on a folder of this size. The last figure is the largest memory of all commands."""
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
