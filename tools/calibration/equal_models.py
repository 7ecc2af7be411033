"""Tests how often a ranking separates models that are equal.

All models respond with the same probability to items (image x attack). Which images are hard, and which suit a model,
is random. A ranking that finds a significant difference between two models is wrong. This may happen in at most 5 % of
the tables, regardless of the number of models. For comparison, the table also has the pairs that uncorrected tests at 5
% would find. It also has the share of pairs that are found if half of the models differ (normal, standard deviation 0.7
logits).

Run: python -m davylamp.tools.calibration.equal_models [--quick] [--write]
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import binom, binomtest, norm

from davylamp.scoring import rank_responses
from davylamp.scoring.ranking import LEVEL, Ranking, Scoring

COUNTS = (2, 3, 5, 10, 20)  # models
SIZES = ((10, 1), (50, 1), (60, 5))  # images, attacks
TABLES: Mapping[Scoring, int] = {"mean": 600, "irt": 60}
DEVIATION = 0.7  # logits between models that differ
PAGE = Path(__file__).with_name("EQUAL_MODELS.md")


class WrongTables(NamedTuple):
    """Numbers of tables of equal models with a significant pair, and the share of real differences found.

    The numbers are with and without correction for the number of pairs.
    """

    pairs: int
    uncorrected: int
    tables: int
    power: float


def responses_of(abilities: np.ndarray, images: int, attacks: int, seed: int) -> tuple[np.ndarray, list[str]]:
    """Simulate responses, (N, images x attacks), and return them with the image of each item."""
    generator, items = np.random.default_rng(seed), images * attacks
    difficulty = np.repeat(generator.normal(size=images), attacks) + generator.normal(scale=0.7, size=items)
    suits = np.repeat(generator.normal(size=(len(abilities), images)), attacks, axis=1)
    odds = abilities[:, None] - difficulty + suits
    answers = (generator.random(odds.shape) < 1 / (1 + np.exp(-odds))).astype(float)
    return answers, [str(image) for image in np.repeat(np.arange(images), attacks)]


def count_wrong_tables(
    count: int, images: int, attacks: int, *, scoring: Scoring, tables: int, real: int = 0
) -> WrongTables:
    """Count the tables of `count` equal models that have a significant pair.

    If `real` models differ, also compute the share of the pairs that are found.
    """
    pairs, uncorrected, shares = 0, 0, []
    for seed in range(tables):
        ranking = _rank(np.zeros(count), images, attacks, scoring, seed)
        if ranking is not None:
            pairs += bool(ranking.apart.any())
            uncorrected += bool((ranking.deviations > norm.ppf((1 + LEVEL) / 2)).any())
    for seed in range(real):
        abilities = DEVIATION * np.random.default_rng((seed, count)).normal(size=count)
        abilities[count // 2 :] = 0
        ranking = _rank(abilities, images, attacks, scoring, seed)
        shares.append(0.0 if ranking is None else ranking.apart[abilities[:, None] != abilities].mean())
    return WrongTables(pairs, uncorrected, tables, float(np.mean(shares)) if shares else float("nan"))


def _rank(abilities: np.ndarray, images: int, attacks: int, scoring: Scoring, seed: int) -> Ranking | None:
    """Return the ranking of a simulated table, or None if all models respond alike."""
    answers, of_image = responses_of(abilities, images, attacks, seed)
    if (answers == answers[0]).all():
        return None
    names = [str(place) for place in range(len(abilities))]
    return rank_responses(answers, names, of_image, scoring=scoring, seed=seed)


def limit_of(tables: int) -> int:
    """Return the largest plausible number of tables with a pair (99.9 % quantile), if the rate is 5 %."""
    return int(binom.ppf(0.999, tables, 1 - LEVEL))


def measure(tables: Mapping[Scoring, int], counts: tuple[int, ...] = COUNTS) -> list[str]:
    """Return a line of the table for each method, number of models, and size."""
    lines = []
    for scoring, repeats in tables.items():
        for images, attacks in SIZES:
            for count in counts:
                wrong = count_wrong_tables(
                    count, images, attacks, scoring=scoring, tables=repeats, real=max(2, repeats // 5)
                )
                ends = binomtest(wrong.pairs, repeats).proportion_ci()
                shares = f"{wrong.pairs / repeats:.3f} | {ends.low:.3f} to {ends.high:.3f}"
                shares += f" | {wrong.uncorrected / repeats:.3f} | {wrong.power:.3f}"
                lines.append(f"| {scoring} | {count} | {images} | {attacks} | {shares} | {repeats} |")
                print(lines[-1], flush=True)
    return lines


def page_of(lines: list[str]) -> str:
    """Return the table as Markdown."""
    heads = ("method", "models", "images", "attacks", "tables with a pair", "95 % interval", "uncorrected")
    heads += ("pairs found of those that differ", "tables")
    about = [
        "Written by `python -m davylamp.tools.calibration.equal_models --write`. Tables of equal models in which",
        "a ranking tells two apart: at most 5 % may. Uncorrected: by a test at 5 % of every pair. The pairs found are",
        f"of models of which half differ by a deviation of {DEVIATION} logits.",
    ]
    table = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *lines]
    return "\n".join(["# Rankings of equal models", "", *about, "", *table, ""])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two tables of 2 and 3 models")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args()
    lines = measure(dict.fromkeys(TABLES, 2), COUNTS[:2]) if options.quick else measure(TABLES)
    if options.write and not options.quick:
        PAGE.write_text(page_of(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
