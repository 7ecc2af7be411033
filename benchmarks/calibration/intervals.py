"""Do the intervals of a ranking cover, when several attacks share the images?

Subjects of known ability answer to items of image x attack. An image may suit a subject better or worse than its
difficulty says, under every attack alike (a testlet effect, Bradlow, Wainer and Wang 1999): then its responses hang
together. Ranked as `davylamp rank` does, with the images as clusters; beside it what the model of independent responses
believes. An effect of the image makes the curve of a subject flatter; the true abilities are shrunk as much (Zeger,
Liang and Albert 1988), ranks and orders are as they were.

Run: python -m davylamp.benchmarks.calibration.intervals [--quick] [--write]
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from davylamp.scoring import Ranking, rank_responses

ATTACKS, IMAGES = 5, 60
SEED = 1000  # of the first repeat; the first thousand were used while this was written
FLATTER = (16 * np.sqrt(3) / (15 * np.pi)) ** 2
FILE = Path(__file__).with_name("RESULTS.md")


class Scenario(NamedTuple):
    """What is simulated: number of subjects, model of the items, testlet deviation, share missing, repeats."""

    subjects: int
    model: str
    testlet: float
    missing: float
    repeats: int


class Simulated(NamedTuple):
    """Responses (N, M) with the image of each item, and the abilities (N,) on the scale of a fit."""

    responses: np.ndarray
    images: list[str]
    ability: np.ndarray


class Coverage(NamedTuple):
    """Shares of true values inside 95 % intervals, and of pairs in the order that was thought more likely.

    Attributes:
        abilities: share inside.
        ranks: share inside.
        orders: share of pairs that are in the order that P(i beats j) prefers.
        believed: mean of the larger of P(i beats j) and P(j beats i): what `orders` should be.
        alone: share of the abilities inside the intervals of the model, every item on its own.
        error: standard error of `abilities` over the repeats; 0 of a single one.
    """

    abilities: float
    ranks: float
    orders: float
    believed: float
    alone: float
    error: float = 0.0


SCENARIOS = (
    Scenario(3, "1pl", 0.0, 0.0, 60),
    Scenario(3, "1pl", 1.0, 0.0, 60),
    Scenario(3, "1pl", 1.0, 0.4, 60),
    Scenario(12, "2pl", 0.0, 0.0, 24),
    Scenario(12, "2pl", 1.0, 0.0, 24),
    Scenario(12, "2pl", 1.0, 0.4, 24),
    Scenario(60, "2pl", 1.0, 0.0, 6),
    Scenario(60, "2pl", 1.0, 0.4, 6),
)


def simulate(scenario: Scenario, images: int = IMAGES, attacks: int = ATTACKS, seed: int = 0) -> Simulated:
    """Outcomes of subjects on images under attacks; items that nobody answered are left out."""
    generator, items = np.random.default_rng(seed), images * attacks
    ability = generator.normal(size=scenario.subjects)
    ability -= ability.mean()
    difficulty = np.repeat(generator.normal(size=images), attacks) + generator.normal(scale=0.7, size=items)
    logs = np.zeros(items) if scenario.model == "1pl" else generator.normal(scale=0.4, size=items)
    own = np.repeat(generator.normal(scale=scenario.testlet, size=(scenario.subjects, images)), attacks, axis=1)
    slopes = np.exp(logs - logs.mean())
    odds = slopes * (ability[:, None] - difficulty + own)
    responses = (generator.random(odds.shape) < 1 / (1 + np.exp(-odds))).astype(float)
    responses[generator.random(odds.shape) < scenario.missing] = np.nan
    kept = (~np.isnan(responses)).any(0)
    names = [str(image) for image in np.repeat(np.arange(images), attacks)[kept]]
    # Every item is flatter by its own factor; a fit has the geometric mean of the slopes at 1.
    flatter = np.log1p(FLATTER * (slopes * scenario.testlet) ** 2).mean() / 2
    return Simulated(responses[:, kept], names, ability * np.exp(-flatter))


def covered(ranking: Ranking, ability: np.ndarray) -> Coverage:
    """What one ranking got right of the truth."""
    true_rank = 1 + (ability > ability[:, None]).sum(1)
    one, other = np.triu_indices(len(ability), 1)
    beats, right = ranking.beats[one, other], ability[one] > ability[other]
    draws = np.zeros((1, len(ability))) if ranking.fit is None else ranking.fit.ability.reshape(-1, len(ability))
    low, high = np.quantile(draws, (0.025, 0.975), axis=0)
    return Coverage(
        float(((ranking.low <= ability) & (ability <= ranking.high)).mean()),
        float(((ranking.rank_low <= true_rank) & (true_rank <= ranking.rank_high)).mean()),
        float(((beats > 0.5) == right).mean()),
        float(np.maximum(beats, 1 - beats).mean()),
        float(((low <= ability) & (ability <= high)).mean()),
    )


def cover(scenario: Scenario, images: int = IMAGES) -> Coverage:
    """The mean over the repeats of a scenario."""
    names = [str(place) for place in range(scenario.subjects)]
    each = []
    for seed in range(SEED, SEED + scenario.repeats):
        truth = simulate(scenario, images, seed=seed)
        ranking = rank_responses(truth.responses, names, truth.images, method="fast", seed=seed)
        each.append(covered(ranking, truth.ability))
    error = np.std([one.abilities for one in each], ddof=1) / np.sqrt(len(each)) if len(each) > 1 else 0.0
    return Coverage(*np.mean(each, axis=0).tolist())._replace(error=float(error))


def main(arguments: list[str] | None = None) -> None:
    """Print, and write if asked, the table of all scenarios."""
    parser = argparse.ArgumentParser(description="Coverage of the intervals of rankings.")
    parser.add_argument("--quick", action="store_true", help="two repeats of the smallest scenarios")
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    scenarios = [own._replace(repeats=2) for own in SCENARIOS[:2]] if options.quick else SCENARIOS
    start = time.perf_counter()
    lines = [
        "| subjects | model | deviation of an image for a subject | missing | repeats "
        "| abilities (standard error) | ranks "
        "| orders right / believed | abilities, items alone |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    print(*lines, sep="\n")
    for own in scenarios:
        found = cover(own)
        about = f"| {own.subjects} | {own.model} | {own.testlet:g} | {own.missing:.0%} | {own.repeats} "
        pairs = f"{found.orders:.3f} / {found.believed:.3f}"
        abilities = f"{found.abilities:.3f} ({found.error:.3f})"
        lines.append(f"{about}| {abilities} | {found.ranks:.3f} | {pairs} | {found.alone:.3f} |")
        print(lines[-1], flush=True)
    if options.write:
        FILE.write_text(_page(lines, time.perf_counter() - start), encoding="utf-8")


def _page(lines: list[str], seconds: float) -> str:
    head = [
        "# Do the intervals cover?",
        "",
        "Written by `python -m davylamp.benchmarks.calibration.intervals --write`; do not edit. Shares of true values",
        f"inside the printed 95 % intervals, {IMAGES} images under {ATTACKS} attacks; {seconds / 60:.0f} minutes.",
        "",
    ]
    return "\n".join([*head, *lines, ""])


if __name__ == "__main__":
    main()
