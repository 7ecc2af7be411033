"""Measures how often a decision by `robust-accuracy --until` is wrong, and how many images it needs.

A test set of 10 000 images is drawn in random order, in blocks of 32. The question is whether robust accuracy is at
least 0.6. The true value is 1, 3 or 10 points above or below. The outcome of 2 % of the images is unknown (invalid
results), and the true value is their worst case. A decision is wrong if the true value is on the other side. At most 5
% of the decisions may be wrong. A fixed number of images decides none of these questions early, because it needs all 10
000.

Run: python -m davylamp.tools.calibration.stopping [--quick] [--write]
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np

from davylamp.engine.statistics.anytime import AnytimeMean, StoppingRule
from davylamp.intervals import proportion_interval

IMAGES, BLOCK, THRESHOLD, RUNS = 10_000, 32, 0.6, 200
GAPS = (-0.1, -0.03, -0.01, 0.01, 0.03, 0.1)
PAGE = Path(__file__).with_name("STOPPING.md")


class Decisions(NamedTuple):
    """Results of many sequences for one true value: wrong and open decisions, and the images used, (runs,)."""

    wrong: int
    open: int
    images: np.ndarray


def decide(truth: float, runs: int, *, invalid: float = 0.0, images: int = IMAGES, seed: int = 0) -> Decisions:
    """Draw random sequences of images, and stop each by the rule.

    Args:
        truth: robust accuracy of all images, with invalid results as not robust.
        runs: number of sequences.
        invalid: rate of images whose outcome is unknown. They may be robust.
        images: size of the test set.
        seed: random seed.
    """
    generator, rule = np.random.default_rng(seed), StoppingRule(threshold=THRESHOLD)
    robust = np.arange(images) < round(truth * images)
    unknown = ~robust & (np.arange(images) >= images - round(invalid * images))
    wrong, undecided, used = 0, 0, []
    for _ in range(runs):
        order, mean = generator.permutation(images), AnytimeMean(images)
        for place in range(0, images, BLOCK):
            block = order[place : place + BLOCK]
            mean.add(robust[block].astype(float), (robust | unknown)[block].astype(float))
            if rule.is_met(mean.interval):
                break
        used.append(mean.images)
        undecided += not rule.is_met(mean.interval)
        low, high = truth, truth + invalid
        wrong += (mean.interval.low >= THRESHOLD > low) or (mean.interval.high < THRESHOLD <= high)
    return Decisions(wrong, undecided, np.array(used))


def measure(runs: int, gaps: tuple[float, ...] = GAPS, images: int = IMAGES) -> list[str]:
    """Return a row of the table for each true value, and print it as soon as it is done."""
    lines = []
    for invalid in (0.0, 0.02):
        for gap in gaps:
            done = decide(THRESHOLD + gap, runs, invalid=invalid, images=images)
            low, high = proportion_interval(done.wrong, runs)
            few, half, many = np.quantile(done.images, [0.1, 0.5, 0.9])
            cells = (f"{gap:+.2f}", f"{invalid:g}", f"{done.wrong / runs:.3f}", f"{low:.3f} to {high:.3f}")
            cells += (done.open, f"{half:.0f}", f"{few:.0f} to {many:.0f}", f"{100 * (1 - half / images):.0f} %")
            lines.append(f"| {' | '.join(map(str, cells))} |")
            print(lines[-1], flush=True)
    return lines


def page_of(lines: list[str]) -> str:
    """Return the table as Markdown."""
    heads = ("truth less 0.6", "invalid", "wrong", "95 % interval", "open at the end", "images (median)", "10 to 90 %")
    heads += ("images saved",)
    about = [
        "Written by `python -m davylamp.tools.calibration.stopping --write`. Decisions of",
        f'`robust-accuracy --until "RA >= {THRESHOLD}"` on {IMAGES} images, {RUNS} random orders a row: at most',
        "5 % may be wrong. Open at the end: invalid results leave both answers possible after all images.",
    ]
    table = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *lines]
    return "\n".join(["# Stopping early", "", *about, "", *table, ""])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="five orders of 1 000 images")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args()
    lines = measure(5, images=1000) if options.quick else measure(RUNS)
    if options.write and not options.quick:
        PAGE.write_text(page_of(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
