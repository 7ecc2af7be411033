"""Measures the speed of rankings: seconds, R-hat and effective draws per second, compared with other samplers.

(a) CANARY's Table 9, both columns, both variants of the curve. (b) 20 subjects x 1000 images, 2PL, with intervals. (c)
The published sampler, imported from `canary-sefi` if installed or from the file of --published, on the same matrix of
metrics. Otherwise a line states that it is omitted. Its own program runs 60 000 steps of one chain for each of eight
fits. (d) 15 subjects x 200 images, 2PL: davylamp's draws, and the point estimate of `py-irt` with its defaults, if
installed. Both sides alternate.

Run: python -m davylamp.tools.speed.scoring [--quick] [--threads 1] [--published irt_analyzer.py]
"""

import argparse
import importlib
import importlib.util
import json
import math
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from scipy.stats import kendalltau, spearmanr

from davylamp.benchmarks.canary.table9 import metrics_under
from davylamp.benchmarks.shared.paper_numbers import load_published
from davylamp.scoring import ResponseModel, fit_irt, rank_table
from davylamp.scoring.canary import normalise_metrics
from davylamp.scoring.diagnostics import bulk_ess, rank_normalised_rhat
from davylamp.tools.speed.figures import SpeedFigure, benchmark_parser, finish, ratio_of

SAMPLER = "canary_sefi.evaluator.analyzer.irt_analyzer"


def main(arguments: list[str] | None = None) -> None:
    """Measure everything and print the results."""
    options = parsed(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"{torch.get_num_threads()} threads; seconds of wall clock (of processor)")
    figures = measure_table_9(quick=options.quick)
    figures.append(measure_noise(2 if options.quick else 5))
    figures.append(measure_many_images(60 if options.quick else 1000))
    figures.append(measure_samplers(load_sampler(options.published), 1500 if options.quick else 30_000))
    figures.append(measure_point_estimate(2, 100 if options.quick else 2000))
    finish(figures, options.json)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = benchmark_parser("Speed of the rankings.")
    parser.add_argument("--threads", type=int, help="threads of torch; default: torch's own choice")
    parser.add_argument("--published", type=Path, help="the published program's irt_analyzer.py")
    return parser.parse_args(arguments)


def measure_table_9(*, quick: bool) -> list[SpeedFigure]:
    """Measure both columns with both curves: time, convergence, and agreement with the published scores.

    Returns:
        Figures of the default curve.
    """
    taken, rhats, close = {}, [], {}
    for curve in ("intercept", "paper"):
        start, work = time.perf_counter(), time.process_time()
        for kind in ("white",) if quick else ("white", "black"):
            values, models, metrics = metrics_under(kind)
            ranking = rank_table(values, models, metrics, curve=curve)
            theirs = {row["model"]: row[f"irt_{kind}_score"] for row in load_published("canary_table9")["rows"]}
            scores: Any = np.array([theirs[model] for model in models])
            quality: Any = ranking.diagnostics
            agreement = float(spearmanr(ranking.score, scores)[0])
            print(
                f"(a) Table 9, {kind}, {curve}: Spearman {agreement:.3f}, Kendall "
                f"{kendalltau(ranking.score, scores)[0]:.3f}, largest difference "
                f"{np.abs(ranking.score - scores).max():.2f}, R-hat {quality.rhat:.4f}, effective draws "
                f"{quality.bulk_ess:.0f}"
            )
            if curve == "intercept":
                rhats.append(quality.rhat)
                close[kind] = agreement
        taken[curve] = time.perf_counter() - start
        print(f"(a) {curve}: {taken[curve]:.1f} s ({time.process_time() - work:.1f} s)")
    return [
        SpeedFigure("Table 9, both columns", taken["intercept"], "s", at_most=15),
        SpeedFigure("largest R-hat of Table 9", max(rhats), "", at_most=1.01),
        *(
            SpeedFigure(f"Spearman with the published Table 9, {kind}-box", value, "", at_least=goal)
            for (kind, value), goal in zip(close.items(), (0.95, 0.98), strict=False)
        ),
    ]


def measure_noise(seeds: int) -> SpeedFigure:
    """Return the largest range of a score over seeds."""
    values, models, metrics = metrics_under("white")
    scores = np.stack([rank_table(values, models, metrics, seed=100 * seed).score for seed in range(seeds)])
    deviation, span = scores.std(0, ddof=1).max(), np.ptp(scores, 0).max()
    print(f"(a) noise of a white-box score over {seeds} seeds: deviation {deviation:.4f}, span {span:.4f} at most")
    return SpeedFigure(f"span of a score over {seeds} seeds", span, "", at_most=0.02)


def simulated(subjects: int, images: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulate responses under the 2PL, shape (subjects, images), and return them with the true abilities."""
    generator = np.random.default_rng(0)
    ability, logs = generator.normal(size=subjects), generator.normal(scale=0.5, size=images)
    logs -= logs.mean()
    linear = np.exp(logs) * (ability[:, None] - generator.normal(scale=1.2, size=images))
    return (generator.random(linear.shape) < 1 / (1 + np.exp(-linear))).astype(float), ability


def measure_many_images(images: int) -> SpeedFigure:
    """Measure time, convergence, recovery and coverage for 20 subjects under the 2PL."""
    responses, ability = simulated(20, images)
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
    return SpeedFigure(f"20 subjects x {images} images, 2PL with intervals", wall, "s", at_most=20)


def load_sampler(path: Path | None) -> ModuleType | None:
    """Return the published program's module, from a file or an installed package, or None if there is neither."""
    try:
        spec = importlib.util.spec_from_file_location("published", path) if path else importlib.util.find_spec(SAMPLER)
    except ImportError:
        return None
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure_samplers(theirs: ModuleType | None, steps: int) -> SpeedFigure:
    """Compare effective draws per second on the distortion costs of Table 8 with the published sampler's."""
    values, _, metrics = metrics_under("white")
    responses = normalise_metrics(values, metrics, "model")[:, -7:]
    model = ResponseModel("3pl", "bernoulli", "intercept", hierarchical=False)
    work = time.process_time()
    fit = fit_irt(responses, model, method="fast", chains=32, warmup=50, draws=300)
    rate = print_rate("ours, 32 chains x 350", fit.ability, time.process_time() - work)
    name, peer = "effective draws per second", "the sampler of canary-sefi 2.1.2"
    if theirs is None:
        return SpeedFigure(
            name, math.nan, peer=peer, note="not measured: canary-sefi is not installed (--published FILE)"
        )
    theirs.tqdm = lambda iterable: iterable  # no progress bars
    chains = []
    work = time.process_time()
    for seed in range(2):
        np.random.seed(seed)  # noqa: NPY002 - the global generator is what it draws from
        chains.append(theirs.mcmc(2 * steps, scores=responses)[0][steps:])
    other = print_rate(f"published, 2 chains x {2 * steps}", np.stack(chains), time.process_time() - work)
    return SpeedFigure(name, rate / other, peer=peer, note=f"{rate:.0f} against {other:.2g} per second of processor")


def print_rate(name: str, ability: np.ndarray, seconds: float) -> float:
    """Print the worst subject's R-hat and effective draws, and return effective draws per second."""
    each = [ability[:, :, subject] for subject in range(ability.shape[2])]
    ess = min(bulk_ess(draws) for draws in each)
    rhat = max(rank_normalised_rhat(draws) for draws in each)
    print(
        f"(c) {name}: {seconds:.1f} s of processor, R-hat {rhat:.4f}, effective draws {ess:.0f}, {ess / seconds:.2g}/s"
    )
    return ess / seconds


def measure_point_estimate(rounds: int, epochs: int) -> SpeedFigure:
    """Compare davylamp's draws with py-irt's point estimate: time, and correlation with the true abilities."""
    name, peer = "speed of a 2PL of 15 subjects x 200 images", "py-irt 0.7.1"
    try:
        training, config = (importlib.import_module(f"py_irt.{part}") for part in ("training", "config"))
    except ImportError as error:
        return SpeedFigure(name, math.nan, peer=peer, note=f"not measured: {error}")
    responses, ability = simulated(15, 200)
    ours, theirs, recovered = [], [], {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "responses.jsonlines")
        rows = (
            {"subject_id": f"{row:02}", "responses": {f"{column:03}": int(value) for column, value in enumerate(line)}}
            for row, line in enumerate(responses)
        )
        file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        for _ in range(rounds):
            start = time.perf_counter()
            fit = fit_irt(responses, ResponseModel("2pl"))
            ours.append(time.perf_counter() - start)
            start = time.perf_counter()
            trainer = training.IrtModelTrainer(
                config=config.IrtConfig(model_type="2pl", epochs=epochs, priors="hierarchical"),
                data_path=file,
                verbose=False,
            )
            trainer.train(device="cpu")
            theirs.append(time.perf_counter() - start)
            fitted = trainer.last_params
            order = np.argsort([fitted["subject_ids"][index] for index in range(15)])
            recovered = {"ours": fit.expected, "theirs": np.array(fitted["ability"])[order]}
    close = {side: np.corrcoef(values, ability)[0, 1] for side, values in recovered.items()}
    note = (
        f"{np.median(ours):.1f} s with intervals against {np.median(theirs):.1f} s without; correlation with the true "
        f"abilities {close['ours']:.3f} and {close['theirs']:.3f}"
    )
    return ratio_of(name, theirs, ours, peer=peer, note=note)


if __name__ == "__main__":
    main()
