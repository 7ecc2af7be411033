"""Median distance after N passes per image: `best` against every single minimum-norm implementation, at equal N.

    python -m davylamp.tools.best_effort.equal_passes [--quick] [--images 40] [--first 0]
        [--passes 50,100,200,500,1000,2000] [--models digits:standard,...] [--norms linf,l2] [--rows adv-lib:fmn,...]

The rule is AttackBench's (Cina et al. 2025). A pass is one image through the model, forwards or backwards. The nearest
adversarial point that the model received within N passes counts, whether or not the attack returns it. An image that
was not fooled has infinite distance.

A single implementation is run once for each N, with a number of steps that fits N (N / 2 with its other defaults). An
implementation that searches over radii shares N among 5, 10 and 20 runs. For each N, the nearest point of any of these
runs within N passes counts. This favours the single implementations, because an attacker makes only one run. The last
two lines under a table are therefore about the best single run: the run with the smallest median after N passes.

`best` also knows N. "anytime" is the curve of its run with the most passes. Implementations whose library needs one
image at a time (C&W, Brendel & Bethge, most of ART's) are omitted, because they take hours.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from davylamp.adapters import IMPLEMENTATIONS, AttackResult, Classifier, ThreatModel, canonical_attack, run_attack
from davylamp.adapters.catalogue.lookup import accepts_parameter, find_library
from davylamp.adapters.data.datasets import load_data
from davylamp.adapters.models.zoo.load import load_model
from davylamp.adapters.running.trace import CurvePoint, Trace
from davylamp.benchmarks.shared.small_models import TRAININGS, load_digits_data, load_small_model
from davylamp.engine import search_portfolio
from davylamp.engine.searches.portfolio import default_names
from davylamp.errors import DavylampError
from davylamp.intervals import ratio_interval

SEARCHES = (5, 10, 20)  # runs of a row that searches over radii: its passes go to few long or to many short ones
PASSES = (50, 100, 200, 500, 1000, 2000)
Case = tuple[Classifier, Tensor, Tensor]
Curves = Sequence[Sequence[CurvePoint]]


class EqualPasses(NamedTuple):
    """Line of the table: median at each number of passes, images fooled at the last one, seconds, and errors.

    `used` is the median number of passes per image in the longest run. `one_run` has for each number of passes the
    distances (n,) in the single run with the smallest median.
    """

    name: str
    medians: tuple[float, ...]
    fooled: int
    seconds: float
    trouble: str = ""
    used: float = math.nan
    one_run: tuple[Sequence[float], ...] = ()


def load_case(name: str, images: int, first: int = 0) -> Case:
    """Load a model and images that it classifies correctly, starting with number `first` of these (from 0)."""
    if name.startswith("digits:"):
        classifier, data = load_small_model(name.partition(":")[2]), load_digits_data(2 * (first + images))
    else:
        classifier = load_model(name)
        data = load_data("demo:imagenet", resize=classifier.resize, crop=classifier.crop)
    right = (classifier.predict_logits(data.inputs).argmax(1) == data.labels).nonzero()[first : first + images, 0]
    return classifier, data.inputs[right], data.labels[right]


def single_rows(norm: str) -> list[str]:
    """Return the installed white-box minimum-norm implementations that support the norm and take a batch."""
    return [
        row.name
        for row in IMPLEMENTATIONS.values()
        if norm in row.classes
        and canonical_attack(row).kind == "minimum-norm"
        and canonical_attack(row).knowledge == "white-box"
        and not (row.alone or row.broken)
        and find_library(row.library).is_installed
    ]


def least_within(curves: Curves, passes: int) -> list[float]:
    """Return the distance of each image after a number of passes."""
    return [min((point.distance for point in curve if point.passes <= passes), default=math.inf) for curve in curves]


def fitting(name: str, passes: int) -> list[dict[str, int]]:
    """Return the settings with which an implementation uses a number of passes.

    An implementation that searches over radii gets several settings, which split the passes differently.
    """
    row = IMPLEMENTATIONS[name]
    if not accepts_parameter(row, "steps"):
        return [{}]
    if not accepts_parameter(row, "binary_search_steps"):
        return [{"steps": passes // 2}]
    return [{"binary_search_steps": runs, "steps": max(1, passes // 2 // runs)} for runs in SEARCHES]


def run_alone(name: str, case: Case, norm: str, passes: Sequence[int]) -> EqualPasses:
    """Run one implementation with each number of passes."""
    start, runs, used = time.perf_counter(), [], math.nan
    least = {most: [math.inf] * len(case[2]) for most in passes}
    for most, words in ((limit, words) for limit in passes for words in fitting(name, limit)):
        trace = Trace(case[1], case[2], None, norm)
        try:
            result = run_attack(name, *case, ThreatModel(norm), trace=trace, max_queries=most, batch_size=64, **words)
        except DavylampError as error:
            return EqualPasses(name, (math.inf,) * len(passes), 0, time.perf_counter() - start, str(error)[:60])
        runs.append(trace.curves)
        used = _median_passes(result)
    for most in passes:
        for curves in runs:
            least[most] = [min(pair) for pair in zip(least[most], least_within(curves, most), strict=True)]
    fooled = sum(map(math.isfinite, least[passes[-1]]))
    medians = tuple(statistics.median(least[most]) for most in passes)
    one_run = tuple(min((least_within(curves, most) for curves in runs), key=statistics.median) for most in passes)
    return EqualPasses(name, medians, fooled, time.perf_counter() - start, used=used, one_run=one_run)


def run_best(case: Case, norm: str, passes: Sequence[int]) -> list[EqualPasses]:
    """Run `best` with each number of passes, and add the curve of its longest run."""
    start, reached, last = time.perf_counter(), [], None
    for most in passes:
        last = search_portfolio(default_names(norm), *case, ThreatModel(norm), max_queries=most, batch_size=64)
        reached.append(least_within(last.curves or (), most))
    if last is None:
        return []
    anytime = tuple(statistics.median(least_within(last.curves or (), most)) for most in passes)
    seconds, fooled, used = time.perf_counter() - start, int(last.success.sum()), _median_passes(last)
    return [
        EqualPasses("best", tuple(map(statistics.median, reached)), fooled, seconds, used=used, one_run=tuple(reached)),
        EqualPasses("best, anytime", anytime, fooled, seconds, used=used),
    ]


def _median_passes(result: AttackResult) -> float:
    return float((result.forwards + result.backwards).double().median())


def print_table(title: str, passes: Sequence[int], lines: Sequence[EqualPasses]) -> None:
    """Print the lines with `best` first. A star marks the smallest median of the single implementations."""
    alone = [line for line in lines if not line.name.startswith("best")]
    front = [min(line.medians[place] for line in alone) for place in range(len(passes))]
    print(f"\n{title}\n\n| attack | {' | '.join(map(str, passes))} | fooled | seconds | |")
    print(f"|---|{'---|' * (len(passes) + 3)}")
    for line in (*lines[: len(lines) - len(alone)], *sorted(alone, key=lambda line: line.medians[-1])):
        cells = [
            f"{median:.4g}{' *' if line in alone and median == least < math.inf else ''}"
            for median, least in zip(line.medians, front, strict=True)
        ]
        print(f"| {line.name} | {' | '.join(cells)} | {line.fooled} | {line.seconds:.0f} | {line.trouble} |")
    ours = lines[0].medians
    ratios = ", ".join(f"{mine / least:.3f}" for mine, least in zip(ours, front, strict=True))
    print(f"\n`best` over the best single row at each N: {ratios}")
    if ran := [line for line in alone if line.one_run]:
        compare_runs(passes, lines[0], ran)


def compare_runs(passes: Sequence[int], best: EqualPasses, alone: Sequence[EqualPasses]) -> None:
    """Compare `best` with the best single run: ratio of the medians, and median ratio per image with its interval."""
    ratios, paired = [], []
    for place, mine in enumerate(best.one_run):
        row = min(alone, key=lambda line: statistics.median(line.one_run[place]))
        theirs = row.one_run[place]
        ratios.append(f"{statistics.median(mine) / statistics.median(theirs):.3f} ({row.name})")
        both = [pair for pair in zip(mine, theirs, strict=True) if math.isfinite(sum(pair))]
        median = ratio_interval([first for first, _ in both], [second for _, second in both], level=0.95)
        paired.append(f"{median.value:.3f} [{median.low:.3f}, {median.high:.3f}] (n {len(both)})")
    print(f"\n`best` over the best single run at each of {', '.join(map(str, passes))}: {', '.join(ratios)}")
    print(f"\nImage by image over that run, the median ratio and its 95 % interval: {', '.join(paired)}", flush=True)


def main() -> None:
    """Print a table for each model and norm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="run one model with two numbers of passes and three implementations"
    )
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="number of correctly classified images to skip")
    parser.add_argument("--models", default=",".join(f"digits:{name}" for name in TRAININGS))
    parser.add_argument("--norms", default="linf,l2")
    parser.add_argument("--passes", default=",".join(map(str, PASSES)))
    parser.add_argument(
        "--rows", default="", help="only these single implementations; those without the norm are omitted"
    )
    options = parser.parse_args()
    passes = (20, 60) if options.quick else tuple(map(int, options.passes.split(",")))
    images = 3 if options.quick else options.images
    for model in ["digits:standard"] if options.quick else options.models.split(","):
        case = load_case(model, images, options.first)
        for norm in options.norms.split(","):
            names = [name for name in single_rows(norm) if not options.rows or name in options.rows.split(",")]
            lines = run_best(case, norm, passes)
            for name in names[:3] if options.quick else names:
                lines.append(run_alone(name, case, norm, passes))
                print(f"{name}: {lines[-1].seconds:.0f} s", file=sys.stderr, flush=True)
            print_table(f"{model}, {norm}, {len(case[2])} images: median distance after N passes", passes, lines)


if __name__ == "__main__":
    main()
