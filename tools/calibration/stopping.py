"""Measures how often a decision by `--until` is wrong, and how many images it needs.

The first table simulates test sets of 10 000 images, drawn in random order in the blocks of `davylamp evaluate
--until`. At most 5 % of the decisions may be wrong. There are two questions:

- Is the robust accuracy at least 0.6? The true value is 1, 3 or 10 points above or below.
- Is one model more robust than another? Their robust accuracies differ by 1, 3 or 10 points. 60 % of the images that
  fool one of them fool both.

Each question is also simulated with 2 % invalid results, for which the truth is a range, and the first with five
attacks that agree on 90 % of the images.

The second table (--digits) uses real results of digits models, which are attacked here once. `--until` stops on random
orders of their images. The table has the rate of orders with the same decision as all images, and the saved passes.

Run: python -m davylamp.tools.calibration.stopping [--digits] [--quick] [--write]
"""

import argparse
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.sequential.evaluate_until import next_block
from davylamp.engine.sequential.question import Answers, is_decided, parse_question
from davylamp.engine.sources import random_order
from davylamp.engine.statistics.anytime import GRID, AnytimeMean
from davylamp.engine.store.results import Results, read_outcomes
from davylamp.intervals import proportion_interval

IMAGES, SHARD, RUNS, THRESHOLD = 10_000, 64, 200, 0.6
GAPS_DIGITS = (-0.1, -0.05, -0.02, 0.02, 0.05, 0.1)
GAPS = (-0.1, -0.03, -0.01, 0.01, 0.03, 0.1)
ATTACKS, AGREE = 5, 0.9
MODELS = ("demo:digits-cnn", "demo:digits-cnn-robust")
RADII = (4 / 255, 16 / 255, 32 / 255)
PAGE = Path(__file__).with_name("STOPPING.md")


class Decisions(NamedTuple):
    """Results of many sequences: wrong and open decisions, and the images used, (runs,)."""

    wrong: int
    open: int
    images: np.ndarray


def decide(
    low: np.ndarray,
    high: np.ndarray,
    threshold: float,
    runs: int,
    *,
    seed: int = 0,
    shard: int = SHARD,
    is_quick: bool = True,
) -> Decisions:
    """Draw sequences of images and stop each once its mean is known to be at least the threshold, or less.

    Args:
        low: smallest possible value of every image, (n,).
        high: largest possible value of every image, (n,).
        threshold: number with which the mean is compared.
        runs: number of sequences.
        seed: random seed.
        shard: images in the first block.
        is_quick: whether to compute bounds only as far as they decide the question.
    """
    generator, images = np.random.default_rng(seed), len(low)
    near = [round(each * (len(GRID) - 1)) for each in (threshold, 1 - threshold)]
    grid = GRID[sorted({0, len(GRID) - 1, *(each + step for each in near for step in (-1, 0, 1))})]  # what decides
    wrong, undecided, used = 0, 0, []
    for _ in range(runs):
        order, mean = generator.permutation(images), AnytimeMean(images, grid=grid if is_quick else GRID)
        while mean.images < images:
            block = order[mean.images : next_block(mean.images, shard, 1, images)]
            mean.add(low[block], high[block])
            if mean.interval.low >= threshold or mean.interval.high < threshold:
                break
        above, below = mean.interval.low >= threshold, mean.interval.high < threshold
        used.append(mean.images)
        undecided += not above and not below
        wrong += (above and low.mean() < threshold) or (below and high.mean() >= threshold)
    return Decisions(wrong, undecided, np.array(used))


def one_model(gap: float, invalid: float, images: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and largest possible robustness of each image. The mean is `gap` from the threshold."""
    robust = np.arange(images) < round((THRESHOLD + gap) * images)
    unknown = ~robust & (np.arange(images) >= images - round(invalid * images))
    return robust.astype(float), (robust | unknown).astype(float)


def correlated_attacks(gap: float, images: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return the worst case over attacks that agree on most images, with the exact mean of `one_model`."""
    generator = np.random.default_rng(seed)
    shared = generator.random(images)
    separate = generator.random((images, ATTACKS))
    strength = np.where(generator.random((images, ATTACKS)) < AGREE, shared[:, None], separate).max(1)
    robust = np.zeros(images)
    robust[np.argsort(strength)[: round((THRESHOLD + gap) * images)]] = 1
    return robust, robust


def two_models(gap: float, invalid: float, images: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the differences of two models whose robust accuracies differ by `gap`, as values from 0 to 1."""
    apart = round(0.4 * (1 - THRESHOLD) * images)  # images that one model loses and the other does not
    more = (apart + round(abs(gap) * images)) // 2
    difference = np.zeros(images)
    difference[:more], difference[more : 2 * more - round(abs(gap) * images)] = np.sign(gap), -np.sign(gap)
    high = difference.copy()
    high[images - round(invalid * images) :] += 1  # the first model may be robust there
    return (difference + 1) / 2, (high.clip(-1, 1) + 1) / 2


def simulate(runs: int, gaps: Sequence[float] = GAPS, images: int = IMAGES) -> Iterator[list[object]]:
    """Yield a row of the table for each question and truth."""
    for gap in gaps:
        cases = {
            "RA >= 0.6": (*one_model(gap, 0, images), THRESHOLD),
            "RA >= 0.6, 2 % invalid": (*one_model(gap, 0.02, images), THRESHOLD),
            "RA >= 0.6, five attacks": (*correlated_attacks(gap, images), THRESHOLD),
            "A > B": (*two_models(gap, 0, images), 0.5),
            "A > B, 2 % invalid": (*two_models(gap, 0.02, images), 0.5),
        }
        for name, (low, high, threshold) in cases.items():
            done = decide(low, high, threshold, runs)
            ends = proportion_interval(done.wrong, runs)
            few, half, many = np.quantile(done.images, [0.1, 0.5, 0.9])
            share = (f"{done.wrong / runs:.3f}", f"{ends[0]:.3f} to {ends[1]:.3f}", done.open)
            yield [name, f"{gap:+.2f}", *share, f"{half:.0f}", f"{few:.0f} to {many:.0f}", f"{1 - half / images:.0%}"]


def attack_digits(folder: Path, limit: int | None) -> Results:
    """Attack the digits models, and return the results."""
    attacks = tuple(
        AttackChoice(name, "linf", radius, parameters={"steps": 20})
        for radius in RADII
        for name in ("foolbox:pgd", "torchattacks:apgd-ce")
    )
    config = Config(models=MODELS, attacks=attacks, data="demo:digits", limit=limit, measures=("cost",))
    summary = evaluate(make_plan(config), ResultsStore(folder))
    assert not summary.failed, summary.failed
    return read_outcomes(folder)


class Replay(NamedTuple):
    """Random orders: those with the decision of all images, wrong ones, images used and share of passes, (runs,)."""

    same: int
    wrong: int
    images: np.ndarray
    passes: np.ndarray


def replay(outcomes: Results, until: str, runs: int, *, shard: int = 16) -> Replay:
    """Let `evaluate --until` stop in random orders of the images of a finished evaluation.

    Every block is answered by `Answers`, as in the evaluation itself. An order is wrong if its decision differs from
    that of all images or, for a width, if an interval lacks the robust accuracy on all images.

    Args:
        outcomes: results on the same images, whose runs the question is about.
        until: the question.
        runs: number of orders, with the seeds 0, 1, ...
        shard: images in the first block.
    """
    question, population = parse_question(until), outcomes.done[0].cell.subject.images
    columns = [{name: np.asarray(each.columns[name]) for name in each.columns} for each in outcomes.done]
    passes = np.sum([each["forwards"] + each["backwards"] for each in columns], axis=0)

    def first(order: np.ndarray, seed: int) -> Results:
        drawn = {"images": len(order), "drawn": (population, seed)}
        done = (
            replace(
                each,
                cell=replace(each.cell, subject=replace(each.cell.subject, **drawn)),
                columns={name: column[order] for name, column in whole.items()},
            )
            for each, whole in zip(outcomes.done, columns, strict=True)
        )
        return replace(outcomes, done=tuple(done))

    truth = Answers(question).update(first(np.arange(population), 0))
    same = wrong = 0
    images, spent = np.zeros(runs), np.zeros(runs)
    for seed in range(runs):
        order, answers, count, found = np.array(random_order(population, seed)), Answers(question), 0, truth
        while count < population and not (count and is_decided(found)):
            count = next_block(count, shard, 1, population)
            found = answers.update(first(order[:count], seed))
        pairs = list(zip(found, truth, strict=True))
        is_of_width = question.width is not None
        covers = all(one.interval.low <= all_.interval.value <= one.interval.high for one, all_ in pairs)
        differs = not covers if is_of_width else any(one.verdict not in ("", all_.verdict) for one, all_ in pairs)
        same, wrong = same + (is_decided(found) and not differs), wrong + differs
        images[seed], spent[seed] = count, passes[order[:count]].sum() / passes.sum()
    return Replay(same, wrong, images, spent)


def measure_digits(runs: int, limit: int | None) -> Iterator[list[object]]:
    """Yield a row for each question on the digits models: equal decisions in random orders, and passes saved."""
    with tempfile.TemporaryDirectory() as folder:
        outcomes = attack_digits(Path(folder), limit)
        for radius in RADII:
            at = f"linf {255 * radius:.0f}/255"
            here = tuple(each for each in outcomes.done if each.cell.threat_model.epsilon == radius)
            for model in MODELS:
                alone = replace(outcomes, done=tuple(each for each in here if each.cell.subject.model == model))
                truth = float(np.minimum.reduce([each.results.robust for each in alone.done]).mean())
                texts = [f"RA >= {truth + gap:.2f}" for gap in GAPS_DIGITS if 0 < round(truth + gap, 2) < 1]
                for text in (*texts, "width <= 0.1"):
                    yield _row(f"{text}, {model}, {at}", f"{truth:.3f}", replay(alone, text, runs))
            both = replace(outcomes, done=here)
            yield _row(f"A > B, {at}", "", replay(both, f"{MODELS[1]} > {MODELS[0]}", runs))


def _row(name: str, truth: str, done: Replay) -> list[object]:
    runs = len(done.images)
    few, half, many = np.quantile(done.images, [0.1, 0.5, 0.9])
    used = f"{half:.0f}", f"{few:.0f} to {many:.0f}"
    return [name, truth, f"{done.same} of {runs}", done.wrong, *used, f"{1 - done.passes.mean():.0%}"]


def _table(heads: Sequence[str], rows: Iterable[list[object]]) -> Iterator[str]:
    """Yield the lines of a Markdown table, printed as they are made."""
    for row in chain([[*heads], ["---"] * len(heads)], rows):
        line = f"| {' | '.join(map(str, row))} |"
        print(line, flush=True)
        yield line


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="five orders of 1 000 images, and 64 digits")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--digits", action="store_true", help="also attack the digits models, for the second table")
    options = parser.parse_args()
    runs, images, limit = (5, 1000, 64) if options.quick else (RUNS, IMAGES, None)
    simulated = ("question", "truth less the bound", "wrong", "95 % interval", "open", "images (median)", "10 to 90 %")
    digits = ("question", "RA of all", "same decision", "wrong", "images (median)", "10 to 90 %", "passes saved (mean)")
    lines = [
        "# Stopping early",
        "",
        "Written by `python -m davylamp.tools.calibration.stopping --write`. Decisions of `evaluate --until`",
        f"on {images} images, {runs} random orders a row: at most 5 % may be wrong. Open: invalid results leave both",
        "answers possible after all images. Five attacks: the worst case of attacks that agree on 90 % of the images.",
        "",
        *_table((*simulated, "images saved"), simulate(runs, images=images)),
        "",
    ]
    if options.digits:
        lines += [
            f"Digits models under PGD and APGD with 20 steps on {limit or 397} images, worst case: stored results",
            f"of one full evaluation in {runs} random orders a row, stopped by the code of `evaluate --until` (blocks",
            "from 16 images). Wrong: a decision other than that of all images, or an interval of a width without their",
            "value.",
            f"A is {MODELS[1]}, B {MODELS[0]}.",
            "",
            *_table(digits, measure_digits(runs, limit)),
            "",
        ]
    if options.write and not options.quick:
        PAGE.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
