"""Measures how long commands take to start: `davylamp --help`, `davylamp attacks` and others.

The time is wall time of whole processes, as a shell starts them, as a median over the rounds. The first round, which
reads the files from disk, is excluded. On a busy machine, the processor seconds in the notes are more meaningful.

    python -m davylamp.tools.speed.start [--quick] [--rounds 11] [--json FILE]
"""

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from davylamp.tools.speed.figures import SpeedFigure, benchmark_parser, finish

GOALS: Mapping[str, float | None] = {"--help": 0.3, "attacks": 0.6, "--version": None}
IMPORTS = ("davylamp", "davylamp.metrics")


def script() -> list[str]:
    """Return the command that is installed with this Python, or the module if there is none."""
    installed = Path(sys.executable).with_name("davylamp")
    return [str(installed)] if installed.is_file() else [sys.executable, "-m", "davylamp.cli"]


def once(command: Sequence[str]) -> tuple[float, float]:
    """Return wall time and processor seconds of one process.

    Raises:
        CalledProcessError: If the process fails.
    """
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "COLUMNS": "100"})
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(name: str, command: Sequence[str], rounds: int, goal: float | None = None) -> SpeedFigure:
    """Return the median time of a command's starts."""
    once(command)
    walls, processors = zip(*(once(command) for _ in range(rounds)), strict=True)
    low, high = np.percentile(walls, (25, 75)).tolist()
    note = f"{statistics.median(processors):.3f} s of processor, {rounds} starts"
    return SpeedFigure(
        f"time of {name}", statistics.median(walls), unit="s", low=low, high=high, at_most=goal, note=note
    )


def main() -> None:
    """Print a line for each command."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    rounds = 2 if options.quick else options.rounds
    figures = [measure(f"davylamp {words}", [*script(), words], rounds, goal) for words, goal in GOALS.items()]
    for module in IMPORTS:
        figures.append(measure(f"import {module}", [sys.executable, "-c", f"import {module}"], min(rounds, 3)))
    finish(figures, options.json)


if __name__ == "__main__":
    main()
