"""What gradients through more draws, more steps and other losses take from random resizing and padding.

    python -m davylamp.benchmarks.challenge.random_resizing [--images 40] [--radius 0.1] [--draws 100]

`known_defences` leaves more than the undefended model has at radius 0.1: for lack of effort, or because that much is
robust there? A plain PGD (steps of a cosine schedule, gradients averaged over answers) on the digits CNN, judged by
draws of its own; the last column is the least that any line so far leaves of each image.
"""

import argparse
import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from davylamp.adapters import Classifier
from davylamp.benchmarks.challenge.known_defences import STANDARD, defended
from davylamp.benchmarks.shared.small_models import load_digits_data, load_small_model


class PgdSetting(NamedTuple):
    """How PGD is run: `mean` of "logits" or "probabilities", `loss` "cross-entropy" or "margin"."""

    steps: int
    answers: int
    mean: str = "logits"
    loss: str = "cross-entropy"
    momentum: float = 0.0


SETTINGS = (
    PgdSetting(20, 10),
    PgdSetting(60, 10),
    PgdSetting(60, 30),
    PgdSetting(200, 10),
    PgdSetting(200, 10, loss="margin"),
    PgdSetting(200, 10, mean="probabilities"),
    PgdSetting(200, 10, loss="margin", momentum=0.75),
    PgdSetting(200, 1, loss="margin", momentum=0.9),
)


def attack(model: Classifier, inputs: Tensor, labels: Tensor, radius: float, setting: PgdSetting) -> Tensor:
    """Examples in the linf ball, shape (N, C, H, W)."""
    torch.manual_seed(0)
    examples, direction = inputs.clone(), torch.zeros_like(inputs)
    for step in range(setting.steps):
        length = radius / 4 * (1 + math.cos(math.pi * step / setting.steps)) + 1e-4
        examples.requires_grad_()
        (gradient,) = torch.autograd.grad(_loss(model, examples, labels, setting), examples)
        size = gradient.abs().mean((1, 2, 3), keepdim=True).clamp_min(1e-12)
        direction = setting.momentum * direction + gradient / size
        moved = examples.detach() + length * direction.sign()
        examples = (inputs + (moved - inputs).clamp(-radius, radius)).clamp(0, 1)
    return examples


def _loss(model: Classifier, examples: Tensor, labels: Tensor, setting: PgdSetting) -> Tensor:
    answers = torch.stack([model(examples) for _ in range(setting.answers)])
    by_share = setting.mean == "probabilities"
    logits = answers.softmax(2).mean(0).clamp_min(1e-12).log() if by_share else answers.mean(0)
    if setting.loss == "cross-entropy":
        return cross_entropy(logits, labels, reduction="sum")
    mine = torch.nn.functional.one_hot(labels, logits.shape[1]).bool()
    return (logits.masked_fill(mine, -math.inf).amax(1) - logits[mine]).sum()


@torch.no_grad()
def kept(model: Classifier, examples: Tensor, labels: Tensor, draws: int) -> Tensor:
    """The share of draws in which each example is still classified right, shape (N,)."""
    return torch.stack([(model(examples).argmax(1) == labels).float() for _ in range(draws)]).mean(0)


def main() -> None:
    """Print a table with a row for each setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=40, help="digits")
    parser.add_argument("--radius", type=float, default=0.1, help="of the linf ball")
    parser.add_argument("--draws", type=int, default=100, help="answers that judge an example")
    options = parser.parse_args()
    model = defended(load_small_model(STANDARD), f"{STANDARD}+resize-pad")
    data = load_digits_data(options.images)
    least = torch.ones(len(data.labels))
    columns = ("steps", "answers a step", "mean of", "loss", "momentum", "accuracy", "least so far")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for setting in SETTINGS:
        examples = attack(model, data.inputs, data.labels, options.radius, setting)
        share = kept(model, examples, data.labels, options.draws)
        least = torch.minimum(least, share)
        numbers = f"{share.mean():.3f} | {least.mean():.3f}"
        print(f"| {' | '.join(map(str, setting))} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
