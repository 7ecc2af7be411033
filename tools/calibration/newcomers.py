"""Tests whether the intervals of new subjects cover their true rank and ability.

The simulation is that of `intervals`. Some subjects are the baseline, and the others are placed among them, one at a
time: by all images, by a third of the images, and by images selected until the rank interval is narrow enough. The last
way tests whether stopping early makes the interval too narrow.

Run: python -m davylamp.tools.calibration.newcomers [--quick] [--write]
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from davylamp.scoring import choose_model, fit_irt, place_new_subject
from davylamp.scoring.adaptive_selection import ImageSelector, choose_images

from .intervals import Scenario, simulate

NEWCOMERS, IMAGES, ATTACKS, SEED, WIDTH = 8, 60, 3, 3000, 1
FILE = Path(__file__).with_name("NEWCOMERS.md")
WAYS = ("all images", "a third of them", "chosen, then stopped")
SCENARIOS = (
    Scenario(9, "1pl", 0.0, 0.0, 30),
    Scenario(9, "1pl", 1.0, 0.0, 30),
    Scenario(12, "2pl", 1.0, 0.0, 20),
)


class Inside(NamedTuple):
    """Whether a new subject's true ability and rank are inside their intervals, and the number of images used."""

    ability: bool
    rank: bool
    images: int


def place_all(scenario: Scenario, seed: int) -> list[tuple[Inside, ...]]:
    """Place every new subject of a simulated data set, in each of `WAYS`."""
    size = scenario.subjects
    truth = simulate(scenario._replace(subjects=size + NEWCOMERS), IMAGES, ATTACKS, seed)
    baseline, images = truth.responses[:size], np.array(truth.images)
    ability = truth.ability - truth.ability[:size].mean()
    fit = fit_irt(baseline, choose_model(baseline, scenario.model), method="fast", draws=500, seed=seed)
    chooser = ImageSelector(fit, baseline, truth.images, seed=seed)
    third = np.isin(images, np.random.default_rng(seed).permutation(np.unique(images))[: IMAGES // 3])
    names = [str(place) for place in range(size)]
    rows = []
    for theta, answers in zip(ability[size:], truth.responses[size:], strict=True):
        rank = 1 + int((ability[:size] > theta).sum())
        each = []
        for kept in (np.ones(len(answers), bool), third):
            placed = place_new_subject(
                baseline, names, np.where(kept, answers, np.nan), "new", truth.images, fit=fit, seed=seed
            )
            (low, high), (best, worst) = placed.interval, placed.rank_interval
            each.append(Inside(low <= theta <= high, best <= rank <= worst, placed.images))

        def answer(asked: list[str], answers: np.ndarray = answers) -> np.ndarray:
            return np.where(np.isin(images, asked), answers, np.nan)

        last = choose_images(chooser, answer, width=WIDTH, batch=4).steps[-1]
        each.append(Inside(last.low <= theta <= last.high, last.rank_low <= rank <= last.rank_high, last.images))
        rows.append(tuple(each))
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Simulate all scenarios, print the table, and write it if requested."""
    parser = argparse.ArgumentParser(description="Coverage of the intervals of newcomers.")
    parser.add_argument("--quick", action="store_true", help="one data set of the smallest scenario")
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    start = time.perf_counter()
    lines = [
        "| baseline | model | deviation by image and subject | newcomers | placed by | images | abilities | ranks |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    print(*lines, sep="\n")
    for scenario in (SCENARIOS[0]._replace(repeats=1),) if options.quick else SCENARIOS:
        sets = [np.array(place_all(scenario, SEED + repeat), dtype=float) for repeat in range(scenario.repeats)]
        values = np.stack(sets)  # (sets, newcomers, ways, 3)
        for place, way in enumerate(WAYS):
            of_set = values[:, :, place].mean(1)
            error = of_set.std(0, ddof=1) / np.sqrt(len(of_set)) if len(of_set) > 1 else np.zeros(3)
            mean = of_set.mean(0)
            about = f"| {scenario.subjects} | {scenario.model} | {scenario.testlet:g} | {values[:, :, 0, 0].size} "
            lines.append(
                f"{about}| {way} | {mean[2]:.0f} | {mean[0]:.3f} ({error[0]:.3f}) | {mean[1]:.3f} ({error[1]:.3f}) |"
            )
            print(lines[-1], flush=True)
    if options.write:
        FILE.write_text(_page(lines, time.perf_counter() - start), encoding="utf-8")


def _page(lines: list[str], seconds: float) -> str:
    head = [
        "# Do the intervals of newcomers cover?",
        "",
        "Written by `python -m davylamp.tools.calibration.newcomers --write`; do not edit. Shares of newcomers",
        "whose true ability and rank are inside the 95 % intervals, with standard errors over simulated data sets;",
        f"{IMAGES} images under {ATTACKS} attacks, {NEWCOMERS} newcomers of a data set, each placed alone; images",
        f"chosen for a newcomer until its interval has at most {WIDTH + 1} ranks, or all; {seconds / 60:.0f} minutes.",
        "",
    ]
    return "\n".join([*head, *lines, ""])


if __name__ == "__main__":
    main()
