"""What a benchmark measures: figures with their goals, printed, and written for `results.py` to gather.

Every `speed_*.py` takes `--quick` and `--json FILE`, and ends with its figures in that file.
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
        name: what it is, in a few words.
        value: the number; NaN: not measured, and `note` says why.
        unit: "x" for a ratio, "s", "MB", ...
        low: first quartile over the rounds; NaN for one round.
        high: third quartile.
        at_least: the goal, from below.
        at_most: the goal, from above.
        peer: the other side of a ratio; "": none.
        note: what a reader must know to believe it.
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
        """The goal as text; "" without one."""
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return "" if self.at_most is None else f"<= {self.at_most:g}"

    @property
    def verdict(self) -> str:
        """Whether the goal is met; "" without a goal or a measurement."""
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
    """The median over paired rounds of one side's time over the other's, with the range of its middle half."""
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    low, high = np.percentile(ratios, (25, 75)).tolist() if len(ratios) > 1 else (math.nan, math.nan)
    return SpeedFigure(name, statistics.median(ratios), low=low, high=high, **settings)


def benchmark_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser that has what every benchmark has: `--quick` and `--json`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="little of everything: that it runs, not how fast")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures, too")
    return parser


def finish(figures: Iterable[SpeedFigure], path: Path | None) -> None:
    """Print the figures and write them if asked."""
    figures = list(figures)
    for figure in figures:
        print(figure)
    if path:
        path.write_text(json.dumps([asdict(figure) for figure in figures], indent=1), encoding="utf-8")


def read_figures(rows: Iterable[Mapping[str, Any]]) -> list[SpeedFigure]:
    """Figures as `finish` wrote them."""
    return [SpeedFigure(**row) for row in rows]
