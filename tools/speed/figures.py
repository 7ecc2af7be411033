"""Figures of a benchmark with their goals, printed and written as JSON for `page.py`.

Every speed benchmark takes `--quick` and `--json FILE`, and writes its figures to that file.
"""

import argparse
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class SpeedFigure:
    """One measured number.

    Args:
        name: short description.
        value: the number. NaN if not measured, with the reason in `note`.
        unit: "x" for a ratio, otherwise the unit, such as "s" or "MB".
        low: first quartile over the rounds. NaN for one round.
        high: third quartile over the rounds.
        at_least: goal, as a lower bound.
        at_most: goal, as an upper bound.
        peer: other side of a ratio, or "".
        note: conditions of the measurement.
    """

    name: str
    value: float
    unit: str = "x"
    low: float = math.nan
    high: float = math.nan
    at_least: float | None = None
    at_most: float | None = None
    peer: str = ""
    note: str = ""

    @property
    def goal(self) -> str:
        """Goal as text, or "" without a goal."""
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return "" if self.at_most is None else f"<= {self.at_most:g}"

    @property
    def verdict(self) -> str:
        """Whether the goal is met, as text, or "" without a goal or a measurement."""
        if not self.goal or math.isnan(self.value):
            return ""
        enough = self.at_least is None or self.value >= self.at_least
        return "met" if enough and (self.at_most is None or self.value <= self.at_most) else "missed"

    def __str__(self) -> str:
        spread = "" if math.isnan(self.low) else f" ({self.low:.4g} - {self.high:.4g})"
        goal = f"; goal {self.goal}: {self.verdict}" if self.goal else ""
        against = f" against {self.peer}" if self.peer else ""
        note = f"; {self.note}" if self.note else ""
        return f"{self.name}{against}: {self.value:.4g} {self.unit}{spread}{goal}{note}"


def ratio_of(name: str, above: Sequence[float], below: Sequence[float], **settings: Any) -> SpeedFigure:
    """Return the median over paired rounds of the ratio of two times, with its interquartile range."""
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    low, high = np.percentile(ratios, (25, 75)).tolist() if len(ratios) > 1 else (math.nan, math.nan)
    return SpeedFigure(name, statistics.median(ratios), low=low, high=high, **settings)


def benchmark_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark, `--quick` and `--json`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="run a minimal version, which tests that it works, not how fast it is"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this JSON file")
    return parser


def finish(figures: Iterable[SpeedFigure], path: Path | None) -> None:
    """Print the figures, and write them if a path is given."""
    figures = list(figures)
    for figure in figures:
        print(figure)
    if path:
        path.write_text(json.dumps([asdict(figure) for figure in figures], indent=1), encoding="utf-8")


def read_figures(rows: Iterable[Mapping[str, Any]]) -> list[SpeedFigure]:
    """Parse figures that `finish` has written."""
    return [SpeedFigure(**row) for row in rows]
