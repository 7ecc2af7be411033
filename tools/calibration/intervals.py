"""Tests whether a ranking's intervals cover the truth if several attacks share the images.

Subjects of known ability respond to items (image x attack). An image may suit a subject better or worse than its
difficulty implies, under every attack alike (a testlet effect, Bradlow, Wainer and Wang 1999). Its responses are then
correlated. The subjects are ranked as by `davylamp rank`, with the images as clusters. For comparison, the intervals of
the model of independent responses are shown. A testlet effect flattens the response curves, so the true abilities are
shrunk accordingly (Zeger, Liang and Albert 1988). Ranks and orders do not change.

An interval of ranks, or a set of orders of two subjects, contains whole ranks or orders, so it covers more than 95 %.
To test P(rank) and P(i beats j) themselves, randomised sets are used (Geyer and Meeden 2005): the last outcome is
included with the probability that gives the set exactly 95 %. If the probabilities are right, such sets cover exactly
95 %.

`--method svi` tests the fit for large data, on more items. Its guide is a normal distribution of independent parts,
whose own intervals are also shown.

Run: python -m davylamp.tools.calibration.intervals [--method svi] [--quick] [--write] [--jobs N]
"""

import argparse
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from scipy.stats import norm

from davylamp.scoring import Ranking, ResponseModel, rank_responses
from davylamp.scoring.response_model import observe
from davylamp.scoring.svi import fit_guide

ATTACKS, IMAGES = 5, 60
LEVEL = 0.95
SEED = 1000  # of the first repeat; the first thousand were used while this was written
FLATTER = (16 * np.sqrt(3) / (15 * np.pi)) ** 2
FILES = {"fast": Path(__file__).with_name("RESULTS.md"), "svi": Path(__file__).with_name("RESULTS_SVI.md")}


class Scenario(NamedTuple):
    """One simulation: number of subjects, model of the items, testlet deviation, share of missing responses, repeats.

    `fitted` is the model of the fit, or empty for the simulated model. Each of the `images` is under `ATTACKS` attacks.
    """

    subjects: int
    model: str
    testlet: float
    missing: float
    repeats: int
    fitted: str = ""
    images: int = IMAGES
    method: Literal["fast", "svi"] = "fast"


class Simulated(NamedTuple):
    """Simulated responses (N, M) with the image of each item, and the true abilities (N,) on the scale of a fit."""

    responses: np.ndarray
    images: list[str]
    ability: np.ndarray


class Coverage(NamedTuple):
    """Coverage of 95 % intervals and sets. All values except the errors are means over subjects or pairs.

    Attributes:
        abilities: share of abilities inside their intervals.
        ranks: share of ranks inside the printed intervals.
        ranks_exact: share of ranks inside randomised 95 % sets from `rank_probability`.
        orders_exact: share of pairs whose order is inside a randomised 95 % set from P(i beats j).
        orders: share of pairs whose order is the one that P(i beats j) prefers.
        believed: mean of the larger of P(i beats j) and P(j beats i), which `orders` should equal.
        alone: share of abilities inside the intervals of the model of independent responses, or of the guide for svi.
        error: standard error of `abilities` over the repeats. 0 for a single repeat.
        orders_error: standard error of `orders_exact`.
    """

    abilities: float
    ranks: float
    ranks_exact: float
    orders_exact: float
    orders: float
    believed: float
    alone: float
    error: float = 0.0
    orders_error: float = 0.0


REPEATS = {3: 150, 12: 40, 60: 10}
SCENARIOS = (
    Scenario(3, "1pl", 0.0, 0.0, REPEATS[3]),
    Scenario(12, "2pl", 0.0, 0.0, REPEATS[12]),
    *(
        Scenario(subjects, model, 1.0, missing, repeats)
        for (subjects, repeats), model, missing in product(REPEATS.items(), ("1pl", "2pl"), (0.0, 0.4))
    ),
    Scenario(3, "2pl", 1.0, 0.0, REPEATS[3], "auto"),
    Scenario(12, "1pl", 1.0, 0.0, REPEATS[12], "auto"),
)
LARGE = (
    Scenario(20, "2pl", 0.0, 0.0, 6, images=200, method="svi"),
    Scenario(60, "1pl", 0.0, 0.4, 4, images=100, method="svi"),
    Scenario(60, "2pl", 0.0, 0.0, 4, images=100, method="svi"),
    Scenario(60, "2pl", 0.0, 0.4, 4, images=400, method="svi"),
    Scenario(60, "2pl", 1.0, 0.0, 4, images=100, method="svi"),
    Scenario(200, "2pl", 0.0, 0.0, 2, images=200, method="svi"),
    Scenario(200, "2pl", 0.0, 0.4, 1, images=2000, method="svi"),
)


def simulate(
    scenario: Scenario,
    images: int | None = None,
    attacks: int = ATTACKS,
    seed: int = 0,
    ability: np.ndarray | None = None,
) -> Simulated:
    """Simulate responses of subjects to images under attacks. Abilities are random unless given.

    Items without responses are omitted.
    """
    images = images or scenario.images
    generator, items = np.random.default_rng(seed), images * attacks
    levels = generator.normal(size=scenario.subjects) if ability is None else ability
    levels = levels - levels.mean()
    difficulty = np.repeat(generator.normal(size=images), attacks) + generator.normal(scale=0.7, size=items)
    logs = np.zeros(items) if scenario.model == "1pl" else generator.normal(scale=0.4, size=items)
    suits = np.repeat(generator.normal(scale=scenario.testlet, size=(scenario.subjects, images)), attacks, axis=1)
    slopes = np.exp(logs - logs.mean())
    odds = slopes * (levels[:, None] - difficulty + suits)
    responses = (generator.random(odds.shape) < 1 / (1 + np.exp(-odds))).astype(float)
    responses[generator.random(odds.shape) < scenario.missing] = np.nan
    kept = (~np.isnan(responses)).any(0)
    names = [str(image) for image in np.repeat(np.arange(images), attacks)[kept]]
    # Every item is flatter by its own factor; a fit has the geometric mean of the slopes at 1.
    flatter = np.log1p(FLATTER * (slopes * scenario.testlet) ** 2).mean() / 2
    return Simulated(responses[:, kept], names, levels * np.exp(-flatter))


def covered(ranking: Ranking, ability: np.ndarray) -> Coverage:
    """Return which intervals and sets of a ranking contain the true abilities, ranks and orders."""
    true_rank = 1 + (ability > ability[:, None]).sum(1)
    one, other = np.triu_indices(len(ability), 1)
    beats, right = ranking.beats[one, other], ability[one] > ability[other]
    draws = np.zeros((1, len(ability))) if ranking.fit is None else ranking.fit.ability.reshape(-1, len(ability))
    low, high = np.quantile(draws, (0.025, 0.975), axis=0)
    return Coverage(
        float(((ranking.low <= ability) & (ability <= ranking.high)).mean()),
        float(((ranking.rank_low <= true_rank) & (true_rank <= ranking.rank_high)).mean()),
        float(in_exact_set(ranking.rank_probability, true_rank - 1).mean()),
        float(in_exact_set(np.stack([beats, 1 - beats], 1), (~right).astype(int)).mean()),
        float(((beats > 0.5) == right).mean()),
        float(np.maximum(beats, 1 - beats).mean()),
        float(((low <= ability) & (ability <= high)).mean()),
    )


def in_exact_set(probability: np.ndarray, truth: np.ndarray, level: float = LEVEL) -> np.ndarray:
    """Return the probability that the truth is in a randomised set of the most likely outcomes.

    Args:
        probability: probability of each outcome, shape (n, K). Rows sum to 1.
        truth: index of the true outcome, shape (n,).
        level: probability of the set, in (0, 1).

    Returns:
        Shape (n,): 1 if the outcome is certainly in the set, a fraction if it is the last outcome included, otherwise
        0.
    """
    order = np.argsort(-probability, axis=1, kind="stable")
    ordered = np.take_along_axis(probability, order, 1)
    before = ordered.cumsum(1) - ordered
    taken = np.clip((level - before) / np.maximum(ordered, 1e-300), 0, 1)
    return taken[order == truth[:, None]]


def cover(scenario: Scenario, images: int | None = None, executor: ProcessPoolExecutor | None = None) -> Coverage:
    """Return the mean coverage over the repeats of a scenario."""
    seeds = range(SEED, SEED + scenario.repeats)
    scenarios, sizes = [scenario] * len(seeds), [images] * len(seeds)
    each = list((map if executor is None else executor.map)(_repeat, scenarios, sizes, seeds))
    errors = np.std(each, axis=0, ddof=1) / np.sqrt(len(each)) if len(each) > 1 else np.zeros(len(Coverage._fields))
    mean = Coverage(*np.mean(each, axis=0).tolist())
    return mean._replace(error=float(errors[0]), orders_error=float(errors[3]))


def _repeat(scenario: Scenario, images: int | None, seed: int) -> Coverage:
    truth, names = simulate(scenario, images, seed=seed), [str(place) for place in range(scenario.subjects)]
    model = scenario.fitted or scenario.model
    ranking = rank_responses(truth.responses, names, truth.images, model=model, method=scenario.method, seed=seed)
    shares = covered(ranking, truth.ability)
    if ranking.fit is None or scenario.method != "svi":
        return shares
    return shares._replace(alone=_guide_alone(ranking.fit.model, truth, seed))


def _guide_alone(model: ResponseModel, truth: Simulated, seed: int) -> float:
    """Return the share of abilities inside the intervals of a guide of independent parts."""
    mean, deviation = (
        {name: value.double().numpy() for name, value in part.items()}
        for part in fit_guide(model, *observe(truth.responses, model.response), seed)
    )
    scale = np.exp(mean["log_discrimination"].mean()) if "log_discrimination" in mean else 1.0
    off = scale * (mean["ability"] - mean["ability"].mean()) - truth.ability
    return float((np.abs(off) <= norm.ppf((1 + LEVEL) / 2) * scale * deviation["ability"]).mean())


def main(arguments: list[str] | None = None) -> None:
    """Simulate all scenarios, print the table, and write it if requested."""
    parser = argparse.ArgumentParser(description="Coverage of the intervals of rankings.")
    parser.add_argument("--quick", action="store_true", help="two repeats of the smallest scenarios")
    parser.add_argument("--method", choices=("fast", "svi"), default="fast", help="method of the fit")
    parser.add_argument("--write", action="store_true", help="write RESULTS.md, or RESULTS_SVI.md")
    parser.add_argument("--jobs", type=int, default=1, help="processes, one thread each")
    options = parser.parse_args(arguments)
    scenarios = SCENARIOS if options.method == "fast" else LARGE
    if options.quick:
        scenarios = [scenario._replace(repeats=2, images=IMAGES) for scenario in scenarios[:2]]
    start, lines = time.perf_counter(), []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, spawn, torch.set_num_threads, (1,)) as executor:
        for line in _table(scenarios, executor):
            print(line, flush=True)
            lines.append(line)
    if options.write:
        page = _page(options.method, lines, (time.perf_counter() - start) * options.jobs)
        FILES[options.method].write_text(page, encoding="utf-8")


def _table(scenarios: Sequence[Scenario], executor: ProcessPoolExecutor) -> Iterator[str]:
    heads = ("subjects", "images", "model", "fitted", "deviation of an image for a subject", "missing", "repeats")
    heads += ("abilities (standard error)", "ranks as printed", "ranks, exact set", "P(i beats j), exact set (s.e.)")
    heads += (
        "orders right / believed",
        "abilities, guide alone" if scenarios[0].method == "svi" else "abilities, items alone",
    )
    yield f"| {' | '.join(heads)} |"
    yield f"| {' | '.join('---' for _ in heads)} |"
    for scenario in scenarios:
        share = cover(scenario, executor=executor)
        cells = (
            scenario.subjects,
            scenario.images,
            scenario.model,
            scenario.fitted or scenario.model,
            f"{scenario.testlet:g}",
        )
        cells += (f"{scenario.missing:.0%}", scenario.repeats, f"{share.abilities:.3f} ({share.error:.3f})")
        cells += (
            f"{share.ranks:.3f}",
            f"{share.ranks_exact:.3f}",
            f"{share.orders_exact:.3f} ({share.orders_error:.3f})",
        )
        cells += (f"{share.orders:.3f} / {share.believed:.3f}", f"{share.alone:.3f}")
        yield f"| {' | '.join(map(str, cells))} |"


def _page(method: str, lines: list[str], seconds: float) -> str:
    head = [
        "# Do the intervals cover?",
        "",
        f"Written by `python -m davylamp.tools.calibration.intervals --method {method} --write`; do not edit.",
        f"Shares of true values inside 95 % intervals, images under {ATTACKS} attacks. An exact set takes in the last",
        "rank or order with the probability that makes the set worth 95 % and not more. "
        f"{seconds / 60:.0f} processor minutes.",
        "",
    ]
    return "\n".join([*head, *lines, ""])


if __name__ == "__main__":
    main()
