"""Measures how many images are needed to place a new model as precisely as with all images.

Twelve models of digits are compared. Four small networks, each trained normally, with noise, and against PGD (Madry et
al. 2018) on scikit-learn's digits, are evaluated by five attacks on the 397 images that were not used for training.
Each model is then placed among the other eleven, with a fit that excludes it: by all images, by images selected for it
(`choose_images`), and by images in random orders, until its rank interval is narrow enough. A hindsight order shows the
smallest possible number: it takes first the images that are most informative about the ability known from all images.

Run: python -m davylamp.tools.calibration.fewer_images [--quick] [--write] [--out FOLDER]
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import davylamp
from davylamp.engine import AttackChoice, load
from davylamp.scoring import build_responses, choose_model, fit_irt
from davylamp.scoring.adaptive_selection import ImageSelector, Step, choose_images
from davylamp.scoring.responses import Responses

FILE = Path(__file__).with_name("FEWER_IMAGES.md")
TRAINED_ON, EPOCHS, BATCH = 1400, 15, 100
ATTACKS = (
    AttackChoice("foolbox:fgsm", "linf", 0.1),
    AttackChoice("foolbox:pgd", "linf", 0.05, parameters={"steps": 10}),
    AttackChoice("foolbox:pgd", "linf", 0.1, parameters={"steps": 10}),
    AttackChoice("foolbox:pgd", "linf", 0.2, parameters={"steps": 10}),
    AttackChoice("foolbox:pgd", "l2", 0.8, parameters={"steps": 10}),
)
ORDERS = 5  # random ones for each newcomer


class Needed(NamedTuple):
    """Numbers of images that determine a new model's rank.

    Attributes:
        newcomer: name of the new model.
        everything: rank by all images.
        chosen: rank by the selected images, as soon as its interval is narrow enough.
        orders: rank by each random order, as soon as its interval is narrow enough.
        hindsight: rank by the most informative images in hindsight, as soon as its interval is narrow enough.
        half: smallest number of images that have half of the total information.
    """

    newcomer: str
    everything: Step
    chosen: Step
    orders: tuple[Step, ...]
    hindsight: Step
    half: int


def _networks() -> dict[str, nn.Module]:
    def of_pixels(width: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

    def of_patches(width: int) -> nn.Module:
        layers = (nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1), nn.ReLU())
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * width, 10))

    return {"mlp32": of_pixels(32), "mlp128": of_pixels(128), "cnn8": of_patches(8), "cnn24": of_patches(24)}


def train_models(epochs: int = EPOCHS) -> dict[str, nn.Module]:
    """Train the twelve networks, and return them by name."""
    inputs, labels = (each[:TRAINED_ON] for each in digits())
    models = {}
    for way in ("plain", "noise", "pgd"):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(len(way))
            for name, net in _networks().items():
                _train(net, way, inputs, labels, epochs)
                models[f"{name}-{way}"] = net.eval()
    return models


def digits() -> tuple[Tensor, Tensor]:
    """Return all 1797 images, shape (N, 1, 8, 8), and their labels."""
    from sklearn.datasets import load_digits

    bunch: Any = load_digits()
    return torch.tensor(bunch.images / 16, dtype=torch.float32)[:, None], torch.tensor(bunch.target)


def _train(net: nn.Module, way: str, inputs: Tensor, labels: Tensor, epochs: int) -> None:
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(labels)).split(BATCH):
            images = inputs[batch]
            if way == "noise":
                images = (images + 0.2 * torch.randn_like(images)).clamp(0, 1)
            if way == "pgd":
                images = _ascend(net, images, labels[batch])
            loss = functional.cross_entropy(net(images), labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


def _ascend(net: nn.Module, inputs: Tensor, labels: Tensor, epsilon: float = 0.1, steps: int = 5) -> Tensor:
    adv_inputs = inputs + epsilon * (2 * torch.rand_like(inputs) - 1)
    for _ in range(steps):
        adv_inputs = adv_inputs.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(functional.cross_entropy(net(adv_inputs), labels), adv_inputs)
        moved = adv_inputs + 2.5 * epsilon / steps * gradient.sign()
        adv_inputs = torch.min(torch.max(moved, inputs - epsilon), inputs + epsilon).clamp(0, 1)
    return adv_inputs.detach()


def need(matrix: Responses, newcomer: str, *, seed: int = 0, orders: int = ORDERS, width: int | None = None) -> Needed:
    """Find the rank of one subject of a matrix among the others: from all images, selected images and random images.

    Args:
        matrix: responses of all subjects.
        newcomer: name of the subject to place.
        seed: random seed of the fit and of the random orders.
        orders: number of random orders.
        width: requested width of the rank interval, worst minus best. None for its width with all images.
    """
    one = matrix.subjects.index(newcomer)
    baseline, answers = np.delete(matrix.values, one, axis=0), matrix.values[one]
    kept = ~np.isnan(baseline).all(0)
    baseline, answers, images = baseline[:, kept], answers[kept], np.array(matrix.images)[kept]
    fit = fit_irt(baseline, choose_model(baseline), method="fast", seed=seed)
    chooser = ImageSelector(fit, baseline, images.tolist(), seed=seed)
    everything = chooser.current_rank(answers)

    def answer(asked: list[str]) -> np.ndarray:
        return np.where(np.isin(images, asked), answers, np.nan)

    wanted = everything.width if width is None else width
    chosen = choose_images(chooser, answer, width=wanted).steps[-1]

    def enough(order: np.ndarray) -> Step:
        steps = (chooser.current_rank(answer(order[: count + 8].tolist())) for count in range(0, len(order), 8))
        return next((step for step in steps if step.width <= wanted), everything)

    generator = np.random.default_rng(seed)
    by_chance = tuple(enough(generator.permutation(chooser.images)) for _ in range(orders))
    information = chooser.information(chooser.log_likelihood(answers))
    best = np.argsort(-information, kind="stable")
    half = 1 + int(np.searchsorted(information[best].cumsum(), information.sum() / 2))
    return Needed(newcomer, everything, chosen, by_chance, enough(chooser.images[best]), half)


def evaluate_models(folder: Path, models: dict[str, nn.Module], limit: int | None = None) -> Responses:
    """Evaluate all models into a folder, and return the matrix that `davylamp rank` builds from it."""
    inputs, labels = (each[TRAINED_ON:][:limit] for each in digits())
    davylamp.evaluate(models, inputs, labels, attacks=ATTACKS, out=folder, measures=())
    return build_responses(load(folder))


def main(arguments: list[str] | None = None) -> None:
    """Measure the images that each new model needs, print the table, and write it if requested."""
    parser = argparse.ArgumentParser(description="Measures how many images place a new model.")
    parser.add_argument("--quick", action="store_true", help="two new models, 40 images, one epoch")
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    parser.add_argument("--out", type=Path, help="store the records here, and resume from them")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as draft:
        folder = options.out or Path(draft) / "records"
        models = train_models(1 if options.quick else EPOCHS)
        matrix = evaluate_models(folder, models, 40 if options.quick else None)
    print(
        *(f"{name}: {mean:.3f}" for name, mean in zip(matrix.subjects, np.nanmean(matrix.values, 1), strict=True)),
        sep="\n",
    )
    needs = []
    for name in matrix.subjects[: 2 if options.quick else None]:
        needs.append(need(matrix, name, orders=1 if options.quick else ORDERS))
        print(_line(needs[-1]), flush=True)
    page = _page(needs, matrix, time.perf_counter() - start)
    print(page)
    if options.write:
        FILE.write_text(page, encoding="utf-8")


def _line(row: Needed) -> str:
    whole, chosen = row.everything, row.chosen
    ranks = [f"{step.rank_low} - {step.rank_high}" for step in (whole, chosen)]
    counts = sorted(step.images for step in row.orders)
    return (
        f"| {row.newcomer} | {ranks[0]} | {ranks[1]} | {whole.images} | {chosen.images} | "
        f"{np.median(counts):.0f} ({counts[0]} to {counts[-1]}) | {row.hindsight.images} | {row.half} |"
    )


def _page(needs: list[Needed], matrix: Responses, seconds: float) -> str:
    shares = {
        "chosen": [row.chosen.images / row.everything.images for row in needs],
        "by chance": [np.median([step.images for step in row.orders]) / row.everything.images for row in needs],
        "in hindsight": [row.hindsight.images / row.everything.images for row in needs],
    }
    inside = {
        "chosen": [row.chosen.rank_low <= _rank(matrix, row.newcomer) <= row.chosen.rank_high for row in needs],
        "by chance": [
            step.rank_low <= _rank(matrix, row.newcomer) <= step.rank_high for row in needs for step in row.orders
        ],
        "in hindsight": [
            row.hindsight.rank_low <= _rank(matrix, row.newcomer) <= row.hindsight.rank_high for row in needs
        ],
    }
    halves = [row.half / row.everything.images for row in needs]
    summary = [
        f"Images {way}: {np.median(values):.0%} of all in the median ({min(values):.0%} to {max(values):.0%}); rank "
        f"by plain mean over all items in {np.mean(inside[way]):.0%} of {len(inside[way])} intervals."
        for way, values in shares.items()
    ]
    return "\n".join(
        [
            "# How many images place a newcomer?",
            "",
            "Written by `python -m davylamp.tools.calibration.fewer_images --write`; do not edit. Each of",
            f"{len(matrix.subjects)} models of digits among the other {len(matrix.subjects) - 1}, from records of",
            f"{len(ATTACKS)} attacks; in batches of 8 images, until the 95 % rank interval is as narrow as with all;",
            f"{len(needs[0].orders)} random orders each; {seconds / 60:.0f} minutes.",
            "",
            "| newcomer | ranks by all | ranks when stopped | images | chosen | by chance (fewest to most) "
            "| in hindsight | hold half of the information |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
            *map(_line, needs),
            "",
            *summary,
            f"Half of the information about a newcomer is in {np.median(halves):.0%} of the images in the median "
            f"({min(halves):.0%} to {max(halves):.0%}).",
            "",
        ]
    )


def _rank(matrix: Responses, name: str) -> int:
    mean = np.nanmean(matrix.values, 1)
    return 1 + int((mean > mean[matrix.subjects.index(name)]).sum())


if __name__ == "__main__":
    main()
