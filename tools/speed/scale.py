"""Predicts the cost of large evaluations from small measured ones, as models, attacks and images grow.

An evaluation of n images is assumed to cost, in seconds,

    for each model:  model + n clean
    for each run:    cell + n (measuring + F forward + B backward)

`model` and `clean` are for loading, probes and clean predictions. `cell` is for files and other one-time costs of an
attack. `measuring` is for metrics and records. An image has F forward and B backward passes, whose seconds depend on
the model. The costs are fitted to runs that differ in images, steps and attacks. The fit is tested on an evaluation of
several other models.

Passes are timed for CANARY's fifteen architectures with random weights, which do not affect the time. F and B of its
attacks are from its Table 5. C&W, SSAH, AdvGAN and TREMBA, for which it prints none, are assumed to cost as much as
EAD. For RobustBench, the assumptions are 10 000 images of 32 x 32, AutoAttack's numbers of iterations, and WRN-28-10.

Without a GPU, a GPU is assumed to sustain --tflops on passes, and to measure as fast as --cores of this machine. With a
GPU, passes are timed on it in batches of 64, and the test evaluation runs on it. Shards go to the GPU that is free
first, the longest shard first.

Run: python -m davylamp.tools.speed.scale [--quick] [--markdown] [--tflops 15] [--cores 8] [--device cuda]
"""

import argparse
import heapq
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import nnls

from davylamp.adapters import Classifier
from davylamp.adapters.data.datasets import Data
from davylamp.benchmarks.shared.paper_numbers import load_published
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.cell_defaults import SHARD_SIZE
from davylamp.tools.speed.passes import ARCHITECTURES, Passes, build, gflops, time_passes

ATTACKS = "torchattacks:pgd", "foolbox:pgd"
SMALL = ("mobilenet_v3_small", "squeezenet1_1")  # of the cells that are run on a CPU
LARGE = ("resnet50", "vgg16")  # of those on a GPU, in batches that fill it: small work waits for its launches there
BATCH = {"cpu": 4, "cuda": 64}  # images whose passes are timed together; a GPU's cells are run in such batches, too
WIDE_RESNET_GFLOPS = 5.25  # WRN-28-10 at 32 x 32, multiply-adds of one forward pass
ROBUSTBENCH = 200, 10_000  # models, images
ROBUST_SHARE = 0.55  # of the images: what is left after APGD-CE
# AutoAttack, standard: APGD-CE 100 steps on all; then on what is left 9 targets x 100 of APGD-T, 9 x 100 of FAB-T, and
# 5000 queries of Square.
AUTOATTACK = (100 + ROBUST_SHARE * (900 + 900 + 5000), 100 + ROBUST_SHARE * (900 + 900))
UNPRINTED = "EAD"
HOUR = 3600


class CostFit(NamedTuple):
    """Fitted seconds for a model, an image on it, a run, an image in the run, and a forward plus backward pass."""

    model: float
    clean: float
    cell: float
    measuring: float
    step: float
    r_squared: float


def is_gpu(device: str) -> bool:
    """Return whether a device is an NVIDIA GPU."""
    return device.startswith("cuda")


def run_cells(names: Sequence[str], attacks: Sequence[tuple[str, int]], images: int, device: str) -> float:
    """Return the seconds that it takes to evaluate every attack, with its steps, on every model."""
    models = {name: Classifier(build(name, device), device=device) for name in names}
    inputs = torch.rand(images, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    labels = next(iter(models.values())).predict_logits(inputs).argmax(1).cpu()
    data = Data(inputs, labels, [f"random-{index}" for index in range(images)])
    choices = tuple(
        AttackChoice(attack, "linf", 8 / 255, parameters={"steps": steps, "step_size": 1 / 255, "random_start": False})
        for attack, steps in attacks
    )
    with tempfile.TemporaryDirectory() as folder:
        batch = {"batch_size": BATCH["cuda"]} if is_gpu(device) else {}
        plan = make_plan(Config(tuple(models), choices, device=device, **batch), models=models, data=data)
        start = time.perf_counter()
        summary = evaluate(plan, ResultsStore(folder))
        taken = time.perf_counter() - start
    if summary.failed:
        raise RuntimeError(f"expected every cell to run, got {summary.failed}")
    return taken


def fit_cells(model: str, counts: Iterable[int], steps: Iterable[int], device: str) -> CostFit:
    """Fit the costs to runs of one model and one or two attacks.

    The fit minimises squared relative errors. No cost is negative.
    """
    rows, taken = [], []
    run_cells([model], [(attack, 1) for attack in ATTACKS], min(counts), device)
    for count in counts:
        for step in steps:
            for cells in (1, 2):
                rows.append((1, count, cells, cells * count, cells * count * step))
                taken.append(run_cells([model], [(attack, step) for attack in ATTACKS[:cells]], count, device))
    design, values = np.array(rows, dtype=float), np.array(taken)
    coefficients, _ = nnls(design / values[:, None], np.ones(len(values)))
    left = values - design @ coefficients
    return CostFit(*coefficients.tolist(), 1 - float(left @ left / ((values - values.mean()) ** 2).sum()))


def finish_time(tasks: Iterable[float], workers: int) -> float:
    """Return the seconds until the last task ends.

    The longest task starts first, and each goes to the first free worker.
    """
    free = [0.0] * workers
    for task in sorted(tasks, reverse=True):
        heapq.heapreplace(free, free[0] + task)
    return max(free)


def shards(images: int, per_image: float, start: float) -> list[float]:
    """Return the seconds of each shard of a run."""
    sizes = [SHARD_SIZE] * (images // SHARD_SIZE) + [images % SHARD_SIZE] * bool(images % SHARD_SIZE)
    return [size * per_image + (0 if index else start) for index, size in enumerate(sizes)]


def canary_counts() -> list[tuple[float, float]]:
    """Return the forward and backward passes per image of CANARY's attacks."""
    rows = {row["attack"]: (row["QNC_F"], row["QNC_B"]) for row in load_published("canary_table5")["rows"]}
    return [counts if counts[0] is not None else rows[UNPRINTED] for counts in rows.values()]


def canary_tasks(passes: dict[str, Passes], fit: CostFit, measuring: float) -> list[float]:
    """Return the shards of 15 models x 20 attacks x 1000 images, with transfer to every other model."""
    elsewhere = sum(each.forward for each in passes.values())
    return [
        task
        for spent in passes.values()
        for forward, backward in canary_counts()
        for task in shards(
            1000, measuring + forward * spent.forward + backward * spent.backward + elsewhere - spent.forward, fit.cell
        )
    ]


def robustbench_tasks(spent: Passes, fit: CostFit, measuring: float) -> list[float]:
    """Return the shards of AutoAttack on 200 models."""
    models, images = ROBUSTBENCH
    per_image = measuring + AUTOATTACK[0] * spent.forward + AUTOATTACK[1] * spent.backward
    return models * shards(images, per_image, fit.cell)


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, markdown: bool) -> str:
    """Format a table, aligned or as Markdown."""
    cells = [list(head), *[[str(cell) for cell in row] for row in rows]]
    if markdown:
        cells.insert(1, ["---"] * len(head))
        return "\n".join("| " + " | ".join(line) + " |" for line in cells)
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)


def hours(taken: float) -> str:
    """Format a duration in hours or days."""
    return f"{taken / HOUR:.3g} h" if taken < 100 * HOUR else f"{taken / HOUR / 24:.3g} days"


def report(options: argparse.Namespace) -> str:
    """Return all measurements and predictions as text."""
    device = options.device
    counts, steps, unseen = ((2, 4), (1, 2), 3) if options.quick else ((8, 16, 32), (1, 10), 24)
    if is_gpu(device) and not options.quick:
        counts, steps, unseen = (64, 128, 256), (5, 20), 192
    models, attacks = LARGE if is_gpu(device) else SMALL, [(attack, max(steps) // 2) for attack in ATTACKS]
    fit = fit_cells(models[0], counts, steps, device)
    measured = run_cells(models, attacks, unseen, device)
    rounds, batch = (1, 1) if options.quick else (3, BATCH["cuda" if is_gpu(device) else "cpu"])
    small = {name: time_passes(name, device, batch=batch, rounds=rounds) for name in models}
    scale = fit.step / sum(small[models[0]])  # of a pass inside an attack
    predicted = sum(
        fit.model
        + unseen * fit.clean
        + sum(fit.cell + unseen * (fit.measuring + scale * taken * sum(small[name])) for _, taken in attacks)
        for name in models
    )
    runs = 2 * len(counts) * len(steps)
    parts = (
        f"A model costs {fit.model:.2f} s and {fit.clean * 1e3:.0f} ms an image, a cell {fit.cell:.2f} s,",
        f"{fit.measuring * 1e3:.2g} ms an image to measure, and {fit.step * 1e3:.3g} ms an image for a step of PGD on",
        f"{models[0]} ({scale:.2f} times a bare pass); fitted to {runs} runs of {min(counts)} to {max(counts)} images,",
        f"R^2 {fit.r_squared:.4f}. Unseen ({len(models)} models x {len(attacks)} attacks x {unseen} images): predicted",
        f"{predicted:.1f} s, measured {measured:.1f} s, {measured / predicted:.2f} times.",
    )
    lines = [" ".join(parts)]
    chosen = dict(list(ARCHITECTURES.items())[:2]) if options.quick else ARCHITECTURES
    timed = {name: time_passes(module, device, batch=batch, rounds=rounds) for name, module in chosen.items()}
    rates = [2 * gflops(chosen[name]) / each.forward / 1e3 for name, each in timed.items()]
    lines += [
        "",
        f"Passes on {where(device)}, batches of {batch}: "
        f"{statistics.median(rates):.3g} TFLOP/s sustained (median of {len(rates)} architectures).",
        "",
        table(
            ("model", "forward, ms an image", "backward, ms"),
            [(name, f"{each.forward * 1e3:.3g}", f"{each.backward * 1e3:.3g}") for name, each in timed.items()],
            markdown=options.markdown,
        ),
        "",
    ]
    here = where(device) if is_gpu(device) else "this machine"
    forecasts: list[tuple[Any, ...]] = [predictions(here, (1,), timed, wide(timed, chosen), fit, fit.measuring)]
    if device == "cpu":
        on_gpu = {name: assumed(gflops(module), options.tflops) for name, module in chosen.items()}
        measuring = fit.measuring * torch.get_num_threads() / options.cores
        gpu = f"assumed GPU, {options.tflops:g} TFLOP/s"
        wide_on_gpu = assumed(WIDE_RESNET_GFLOPS, options.tflops)
        forecasts += [predictions(gpu, (workers,), on_gpu, wide_on_gpu, fit, measuring) for workers in (1, 8, 64)]
    else:
        forecasts += [
            predictions(here, (workers,), timed, wide(timed, chosen), fit, fit.measuring) for workers in (8, 64)
        ]
    kind = f"CANARY, {len(chosen)} models x {len(canary_counts())} attacks x 1000 images"
    robust = f"RobustBench, {ROBUSTBENCH[0]} models, AutoAttack on {ROBUSTBENCH[1]} images"
    lines.append(table(("on", "how many", kind, robust, "of it measuring"), forecasts, markdown=options.markdown))
    return "\n".join(lines)


def where(device: str) -> str:
    """Describe the device on which passes were timed."""
    return torch.cuda.get_device_name(device) if is_gpu(device) else f"{torch.get_num_threads()} cores"


def assumed(billions: float, tflops: float) -> Passes:
    """Return the passes of a model on a GPU with a sustained speed.

    A backward pass takes twice as long as a forward pass.
    """
    forward = 2 * billions / 1e3 / tflops
    return Passes(forward, 2 * forward)


def wide(timed: dict[str, Passes], chosen: dict[str, str]) -> Passes:
    """Return the passes of WRN-28-10 at the joint rate of the timed models."""
    work = sum(gflops(chosen[name]) for name in timed)
    return Passes(*(WIDE_RESNET_GFLOPS * sum(part) / work for part in zip(*timed.values(), strict=True)))


def predictions(
    name: str, workers: tuple[int], passes: dict[str, Passes], wide_resnet: Passes, fit: CostFit, measuring: float
) -> tuple[Any, ...]:
    """Return a row: device, number of devices, hours of CANARY's evaluation and of RobustBench, share of measuring."""
    canary = canary_tasks(passes, fit, measuring)
    robust = robustbench_tasks(wide_resnet, fit, measuring)
    share = len(passes) * len(canary_counts()) * 1000 * measuring / sum(canary)
    return (
        name,
        workers[0],
        hours(finish_time(canary, workers[0])),
        hours(finish_time(robust, workers[0])),
        f"{share:.0%}",
    )


def main() -> None:
    """Measure everything and print the text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="run a minimal version, which tests that it works, not how fast it is"
    )
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--tflops", type=float, default=15, help="TFLOP/s that an assumed GPU sustains")
    parser.add_argument("--cores", type=int, default=8, help="CPU cores of a machine with an assumed GPU")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        print(report(options))


if __name__ == "__main__":
    main()
