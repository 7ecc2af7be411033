"""Tests whether bootstrap intervals of tables and detectors cover the truth with few images.

The simulated quantities are means of n numbers that are normal, exponential or lognormal (like distances and times),
and the area under a detector's ROC curve from n images of which `fooled` count. The table has the share of repeats in
which the printed interval contains the true value, if an interval is printed. For comparison, it has the plain 2.5 %
and 97.5 % percentiles of the same replicates.

Run: python -m davylamp.tools.calibration.small_samples [--quick] [--write]
"""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest, norm

from davylamp.engine.detection.roc import REPLICATES, area_of_images, area_under_curve
from davylamp.engine.statistics.bootstrap import bootstrap_means, interval, interval_bands, resample

SIZES = (5, 6, 8, 10, 15, 20, 40, 100)
DETECTORS = ((40, 8, 1.0), (40, 8, 2.0), (100, 10, 2.0), (100, 10, 3.0), (100, 40, 2.0))  # images, fooled, shift
NUMBERS: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], float]] = {
    "normal": (lambda generator, n: generator.normal(size=n), 0.0),
    "exponential": (lambda generator, n: generator.exponential(size=n), 1.0),
    "lognormal": (lambda generator, n: generator.lognormal(size=n), math.exp(0.5)),
}
PAGE = Path(__file__).with_name("SMALL_SAMPLES.md")


class CoveredCase(NamedTuple):
    """Coverage of the printed intervals and of plain percentiles, over the repeats with an interval."""

    title: str
    printed: int
    plain: int
    repeats: int


def cover_means(name: str, n: int, repeats: int) -> CoveredCase:
    """Measure the coverage for means of n numbers."""
    draw, truth = NUMBERS[name]
    generator, printed, plain = np.random.default_rng((n, len(name))), 0, 0
    for seed in range(repeats):
        drawn = bootstrap_means(resample(n, 1000, seed), draw(generator, n)[:, None])[0].ratio
        estimate, (low, high) = interval(drawn, n), interval_bands(drawn[:, None])
        printed += estimate.low <= truth <= estimate.high
        plain += low[0] <= truth <= high[0]
    return CoveredCase(f"mean, {name}, n = {n}", int(printed), int(plain), repeats)


def cover_areas(images: int, fooled: int, shift: float, repeats: int) -> CoveredCase:
    """Measure the coverage for areas under the ROC curve. Scores are normal, and those of examples are shifted."""
    generator, chosen = np.random.default_rng((images, fooled)), np.arange(images) < fooled
    truth = float(norm.cdf(shift / math.sqrt(2)))
    printed = plain = shown = 0
    for seed in range(repeats):
        clean, strange = generator.normal(size=images), generator.normal(shift, 1, size=images)
        area = area_of_images(clean, strange, chosen, seed)
        if math.isnan(area.low):
            continue
        shown += 1
        printed += area.low <= truth <= area.high
        areas = [
            area_under_curve(np.repeat(clean, counts), np.repeat(strange[chosen], counts[chosen]))
            for counts in resample(images, REPLICATES, seed)[1:201]
        ]
        low, high = np.nanquantile(areas, (0.025, 0.975))
        plain += low <= truth <= high
    return CoveredCase(f"area {truth:.3f}, {fooled} of {images} images fooled", printed, plain, shown)


def measure(repeats: int) -> list[CoveredCase]:
    """Measure the coverage in every case."""
    means = [cover_means(name, n, repeats) for name in NUMBERS for n in SIZES]
    return means + [cover_areas(*case, max(2, repeats // 5)) for case in DETECTORS]


def page_of(lines: list[CoveredCase]) -> str:
    """Return the table as Markdown."""
    rows = [
        f"| {line.title} | {line.printed / max(line.repeats, 1):.3f} | {line.plain / max(line.repeats, 1):.3f} | "
        f"{_ends(line)} | {line.repeats} |"
        for line in lines
    ]
    head = ["| | printed | plain percentiles | 95 % interval of the printed one | repeats |", "|---|---|---|---|---|"]
    about = (
        "Written by `python -m davylamp.tools.calibration.small_samples --write`. How often intervals that say "
        "95 %\nhold the true value, where one is printed. 1000 replicates (plain ones of areas: 200 of them)."
    )
    return "\n".join(["# Intervals that rest on few images", "", about, "", *head, *rows, ""])


def _ends(line: CoveredCase) -> str:
    ends = binomtest(line.printed, max(line.repeats, 1)).proportion_ci()
    return f"{ends.low:.3f} to {ends.high:.3f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args()
    page = page_of(measure(4 if options.quick else 2000))
    print(page)
    if options.write and not options.quick:
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
