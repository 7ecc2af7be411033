"""Speed of the rankings: seconds, R-hat and effective draws per second, beside the published sampler's in the same run.

(a) CANARY's Table 9, both columns, both variants of the curve; (b) 20 subjects x 1000 images, 2PL, with intervals. The
published sampler is imported from `canary-sefi` if that is installed, or from the file given by --published, and is run
on the same matrix of metrics; else a line says that it is left out. Its own program runs 60 000 steps of one chain for
each of eight fits.

Run: python benchmarks/speed_scoring.py [--quick] [--threads 1] [--published irt_analyzer.py]
"""

import argparse
import importlib.util
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from scipy.stats import kendalltau, spearmanr

from davylamp.benchmarks.canary_table9 import metrics_under, published
from davylamp.scoring import ResponseModel, fit_irt, rank_table
from davylamp.scoring.diagnostics import bulk_ess, rank_normalised_rhat
from davylamp.scoring.tables import scaled

SAMPLER = "canary_sefi.evaluator.analyzer.irt_analyzer"


def main(arguments: list[str] | None = None) -> None:
    """Time each part and print its quality."""
    options = parsed(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"{torch.get_num_threads()} threads; seconds of wall clock (of processor)")
    print_table_9(quick=options.quick)
    print_noise(2 if options.quick else 5)
    print_many_images(60 if options.quick else 1000)
    print_samplers(load_sampler(options.published), 1500 if options.quick else 30_000)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description="Speed of the rankings.")
    parser.add_argument("--quick", action="store_true", help="small and short: does it run?")
    parser.add_argument("--threads", type=int, help="threads of torch; default: torch's own choice")
    parser.add_argument("--published", type=Path, help="the published program's irt_analyzer.py")
    return parser.parse_args(arguments)


def print_table_9(*, quick: bool) -> None:
    """Both columns with both curves: time, convergence and closeness to the published scores."""
    for curve in ("intercept", "paper"):
        start, work = time.perf_counter(), time.process_time()
        for kind in ("white",) if quick else ("white", "black"):
            values, models, metrics = metrics_under(kind)
            ranking = rank_table(values, models, metrics, curve=curve)
            theirs = {row["model"]: row[f"irt_{kind}_score"] for row in published(9)}
            scores: Any = np.array([theirs[model] for model in models])
            quality: Any = ranking.diagnostics
            print(
                f"(a) Table 9, {kind}, {curve}: Spearman {spearmanr(ranking.score, scores)[0]:.3f}, Kendall "
                f"{kendalltau(ranking.score, scores)[0]:.3f}, largest difference "
                f"{np.abs(ranking.score - scores).max():.2f}, R-hat {quality.rhat:.4f}, effective draws "
                f"{quality.bulk_ess:.0f}"
            )
        print(f"(a) {curve}: {time.perf_counter() - start:.1f} s ({time.process_time() - work:.1f} s)")


def print_noise(seeds: int) -> None:
    """Largest spread of a score over seeds."""
    values, models, metrics = metrics_under("white")
    scores = np.stack([rank_table(values, models, metrics, seed=100 * seed).score for seed in range(seeds)])
    deviation, span = scores.std(0, ddof=1).max(), np.ptp(scores, 0).max()
    print(f"(a) noise of a white-box score over {seeds} seeds: deviation {deviation:.4f}, span {span:.4f} at most")


def print_many_images(images: int) -> None:
    """20 subjects, 2PL: time, convergence, recovery, coverage."""
    generator = np.random.default_rng(0)
    ability, logs = generator.normal(size=20), generator.normal(scale=0.5, size=images)
    logs -= logs.mean()
    linear = np.exp(logs) * (ability[:, None] - generator.normal(scale=1.2, size=images))
    responses = (generator.random(linear.shape) < 1 / (1 + np.exp(-linear))).astype(float)
    start, work = time.perf_counter(), time.process_time()
    fit = fit_irt(responses, ResponseModel("2pl"))
    wall, work = time.perf_counter() - start, time.process_time() - work
    low, high = np.quantile(fit.ability, (0.025, 0.975), axis=(0, 1))
    truth = ability - ability.mean()
    covered = np.count_nonzero((low < truth) & (truth < high))
    quality = fit.diagnostics
    print(
        f"(b) 20 subjects x {images} images, 2PL: {wall:.1f} s ({work:.1f} s), R-hat {quality.rhat:.4f}, effective "
        f"draws {quality.bulk_ess:.0f} (bulk) {quality.tail_ess:.0f} (tail), {quality.bulk_ess / work:.0f} a second of "
        f"processor; correlation {np.corrcoef(fit.expected, truth)[0, 1]:.4f}, {covered} of 20 intervals cover"
    )


def load_sampler(path: Path | None) -> ModuleType | None:
    """The published program's module, from a file or an installed package; None: there is neither."""
    try:
        spec = importlib.util.spec_from_file_location("published", path) if path else importlib.util.find_spec(SAMPLER)
    except ImportError:
        return None
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def print_samplers(theirs: ModuleType | None, steps: int) -> None:
    """Effective draws per second on the disturbance costs of Table 8: ours, then the published sampler."""
    values, _, metrics = metrics_under("white")
    responses = scaled(values, metrics, "model")[:, -7:]
    model = ResponseModel("3pl", "bernoulli", "intercept", hierarchical=False)
    work = time.process_time()
    fit = fit_irt(responses, model, method="fast", chains=32, warmup=50, draws=300)
    print_rate("ours, 32 chains x 350", fit.ability, time.process_time() - work)
    if theirs is None:
        print("(c) the published sampler is left out: pip install canary-sefi, or give its irt_analyzer.py")
        return
    theirs.tqdm = lambda iterable: iterable  # no progress bars
    chains = []
    work = time.process_time()
    for seed in range(2):
        np.random.seed(seed)  # noqa: NPY002 - the global generator is what it draws from
        chains.append(theirs.mcmc(2 * steps, scores=responses)[0][steps:])
    print_rate(f"published, 2 chains x {2 * steps}", np.stack(chains), time.process_time() - work)


def print_rate(name: str, ability: np.ndarray, seconds: float) -> None:
    """The worst subject's R-hat and effective draws."""
    each = [ability[:, :, subject] for subject in range(ability.shape[2])]
    ess = min(bulk_ess(draws) for draws in each)
    rhat = max(rank_normalised_rhat(draws) for draws in each)
    print(
        f"(c) {name}: {seconds:.1f} s of processor, R-hat {rhat:.4f}, effective draws {ess:.0f}, {ess / seconds:.0f}/s"
    )


if __name__ == "__main__":
    main()
