"""Tests the number of images that `project_pairs` projects to be needed to separate two models.

Three models of known ability respond as in `intervals`. With 40 images, two of them are rarely separated. Projections
are taken from repeats whose estimated difference is within a quarter of the true one, because projections assume this.
Their median is compared with the number of images at which P(i beats j) has a median of 97.5 %. That number is measured
on new data with about as many images, and scaled to the level by the square root.

Run: python -m davylamp.tools.calibration.projection [--quick] [--write]
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import norm

from davylamp.scoring import Ranking, project_pairs, rank_responses
from davylamp.tools.calibration.intervals import Scenario, simulate

ATTACKS, IMAGES = 3, 40
NAMES = ("a", "b", "c")
SETTINGS = ((0.4, 0.0), (0.3, 0.0), (0.6, 1.0))  # difference of a and b, testlet deviation
REPEATS = 40
NEAR = 0.25  # of the true difference
MOST = 3.4  # a z that 4000 draws can still show
FILE = Path(__file__).with_name("PROJECTION.md")


class Checked(NamedTuple):
    """Projected and true numbers of images.

    Attributes:
        projected: median projected number of images in total, over repeats whose difference is near the true one.
        low: 10 % quantile of the projections.
        high: 90 % quantile of the projections.
        near: number of repeats whose difference is near the true one.
        true: number of images at which the median of P(a beats b) is 97.5 %.
        error: standard error of `true`.
    """

    projected: float
    low: float
    high: float
    near: int
    true: float
    error: float


def check(difference: float, testlet: float, *, images: int = IMAGES, repeats: int = REPEATS) -> Checked:
    """Measure the projected and the true number of images that separate two models with one difference of abilities."""
    numbers = []
    for seed in range(repeats):
        ranking, ability = _rank(difference, testlet, images, seed)
        gap, truth = ranking.score[0] - ranking.score[1], ability[0] - ability[1]
        if abs(gap - truth) > NEAR * truth:
            continue
        pair = {(each.better, each.worse): each for each in project_pairs(ranking, images)}.get(("a", "b"))
        more = 0 if pair is None else np.inf if pair.more is None else pair.more
        numbers.append(images + more)
    low, projected, high = np.quantile(numbers, (0.1, 0.5, 0.9), method="inverted_cdf").tolist()
    asked = int(min(projected, 10 * images))
    z = [_z(_rank(difference, testlet, asked, 10_000 + seed)[0]) for seed in range(repeats)]
    true = asked * (norm.ppf(0.975) / np.median(z)) ** 2
    error = true * 2 * np.sqrt(np.pi / 2 / len(z)) * np.std(z) / np.median(z)
    return Checked(projected, low, high, len(numbers), float(true), float(error))


def _rank(difference: float, testlet: float, images: int, seed: int) -> tuple[Ranking, np.ndarray]:
    """Return a ranking of the three models, and their abilities."""
    ability = np.array([difference / 2 - 0.5, -difference / 2 - 0.5, 1.0])
    truth = simulate(Scenario(3, "1pl", testlet, 0.0, 1), images, ATTACKS, seed, ability=ability)
    return rank_responses(truth.responses, NAMES, truth.images, method="fast", seed=seed), truth.ability


def _z(ranking: Ranking) -> float:
    return float(np.clip(norm.ppf(ranking.beats[0, 1]), -MOST, MOST))


def main(arguments: list[str] | None = None) -> None:
    """Simulate all settings, print the table, and write it if requested."""
    parser = argparse.ArgumentParser(description="Projected numbers of images against true ones.")
    parser.add_argument("--quick", action="store_true", help="few repeats of the first setting")
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    start = time.process_time()
    heads = ("difference", "deviation of an image for a model", "projected images (10 to 90 % of repeats)", "repeats")
    heads += ("images that are needed (standard error)", "ratio")
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join('---' for _ in heads)} |"]
    print(*lines, sep="\n")
    for difference, testlet in SETTINGS[:1] if options.quick else SETTINGS:
        row = check(difference, testlet, repeats=8 if options.quick else REPEATS)
        numbers = f"{row.projected:.0f} ({row.low:.0f} to {row.high:.0f}) | {row.near}"
        true = f"{row.true:.0f} ({row.error:.0f}) | {row.projected / row.true:.2f}"
        lines.append(f"| {difference:g} | {testlet:g} | {numbers} | {true} |")
        print(lines[-1], flush=True)
    if options.write:
        head = [
            "# Is the projected number of images right?",
            "",
            "Written by `python -m davylamp.tools.calibration.projection --write`; do not edit. Projected from",
            f"{IMAGES} images under {ATTACKS} attacks, where the estimated difference is near the true one.",
            f"{(time.process_time() - start) / 60:.0f} processor minutes.",
            "",
        ]
        FILE.write_text("\n".join([*head, *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
