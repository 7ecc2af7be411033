"""Finds the lowest accuracy that attacks on random resizing and padding can reach, with exact expectations.

    python -m davylamp.tools.challenge.random_resizing [--images 40] [--radius 0.1] [--long 1000]

At radius 0.1, `known_defences` leaves a higher accuracy for this defence than for the undefended model. Either the
effort was too small, or the defence is that robust. A digit of 32 pixels has only 30 sizes and places, so nothing is
sampled: the attacked expectation, its gradient, and the judged rate are exact.

The attacks are PGD with momentum and a cosine schedule of step sizes, on several losses and from several starts. Every
line continues with the images that are not yet fooled in all places. The last column is the smallest rate of all lines
so far, image by image. The last line is not an attack on the defence: it uses a separate perturbation for every size
and place, as if the attacker knew the draw. If its mean over the places is low and the other lines are higher, the
remaining accuracy is due to the attacker not knowing the draw.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, interpolate, pad

from davylamp.adapters import Classifier, defend
from davylamp.benchmarks.shared.small_models import load_digits_data, load_small_model
from davylamp.tools.challenge.known_defences import STANDARD

SMALLEST = 0.9  # what `resize-pad` has where nothing is asked for
LEFT = 0.004  # an image of which less is right is not attacked any more
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # of logits (K, N, classes), labels (N,), weights (K, 1): (N,)


@dataclass
class EveryPlace:
    """A model behind random resizing and padding, at every size and place with its probability.

    Args:
        model: the undefended model.
        side: side of the images, pixels.
    """

    model: Classifier
    side: int
    boxes: list[tuple[int, int, int]] = field(init=False)
    weights: Tensor = field(init=False)

    def __post_init__(self) -> None:
        shares = SMALLEST + (1 - SMALLEST) * (torch.arange(100_000, dtype=torch.double) + 0.5) / 100_000
        sizes, counts = (shares * self.side).round().long().unique(return_counts=True)
        self.boxes, weights = [], []
        for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
            room = self.side - size + 1
            self.boxes += [(size, top, left) for top in range(room) for left in range(room)]
            weights += [count / len(shares) / room**2] * room**2
        self.weights = torch.tensor(weights)[:, None]

    def place(self, images: Tensor, box: tuple[int, int, int]) -> Tensor:
        """Resize images and place them on black, for one size and place."""
        size, top, left = box
        smaller = interpolate(images, size=(size, size), mode="nearest")
        return pad(smaller, [left, self.side - size - left, top, self.side - size - top])

    def logits(self, images: Tensor) -> Tensor:
        """Return logits at every place, shape (K, N, classes).

        The images have shape (N, C, H, W), or (K, N, C, H, W) with separate images for each of the K places.
        """
        every = images if images.dim() == 5 else images.expand(len(self.boxes), *images.shape)
        placed = torch.stack([self.place(batch, box) for batch, box in zip(every, self.boxes, strict=True)])
        return self.model(placed.flatten(0, 1)).unflatten(0, placed.shape[:2])

    @torch.no_grad()
    def kept(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the probability that each image is classified correctly, shape (N,)."""
        return (self.weights * (self.logits(images).argmax(2) == labels)).sum(0)


def of_label(values: Tensor, labels: Tensor) -> Tensor:
    """Return the value of the true class, shape (K, N)."""
    return values.gather(2, labels.expand(len(values), -1)[..., None])[..., 0]


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the largest other logit minus that of the true class, shape (K, N). Positive values mean fooled."""
    places = labels.expand(len(logits), -1)[..., None]
    return logits.scatter(2, places, -math.inf).amax(2) - of_label(logits, labels)


def _of_mean_logits(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    return cross_entropy((weights[..., None] * logits).sum(0), labels, reduction="none")


LOSSES: dict[str, Loss] = {
    "cross-entropy of mean logits": _of_mean_logits,
    "mean cross-entropy": lambda logits, labels, weights: -(weights * of_label(logits.log_softmax(2), labels)).sum(0),
    "mean probability": lambda logits, labels, weights: -(weights * of_label(logits.softmax(2), labels)).sum(0),
    "mean sigmoid of the margin": lambda logits, labels, weights: (weights * margin(logits, labels).sigmoid()).sum(0),
    "mean margin up to 0.5": lambda logits, labels, weights: (weights * margin(logits, labels).clamp(max=0.5)).sum(0),
}
LINES = (
    ("clean", "cross-entropy of mean logits", 20),
    ("clean", "cross-entropy of mean logits", 100),
    ("clean", "mean probability", 100),
    ("clean", "mean sigmoid of the margin", 100),
    ("undefended", "mean sigmoid of the margin", 100),
    ("random", "mean sigmoid of the margin", 150),
    ("random", "mean probability", 150),
    ("random", "mean margin up to 0.5", 150),
    ("random", "mean cross-entropy", 150),
    ("clean", "mean sigmoid of the margin", 0),  # as many steps as --long says
)


def attack(ascend: Callable[[Tensor], Tensor], inputs: Tensor, start: Tensor, radius: float, steps: int) -> Tensor:
    """Return images in the linf ball around `inputs` at which the sum of `ascend` is large."""
    images, direction = start.clone(), torch.zeros_like(start)
    for step in range(steps):
        images.requires_grad_()
        (gradient,) = torch.autograd.grad(ascend(images).sum(), images)
        size = gradient.abs().mean((-3, -2, -1), keepdim=True).clamp_min(1e-12)
        direction = 0.75 * direction + gradient / size
        length = radius / 4 * (1 + math.cos(math.pi * step / steps)) + 1e-4
        moved = images.detach() + length * direction.sign()
        images = (inputs + (moved - inputs).clamp(-radius, radius)).clamp(0, 1)
    return images.detach()


def main() -> None:
    """Run the attacks and print a table with a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=40, help="digits")
    parser.add_argument("--radius", type=float, default=0.1, help="radius of the linf ball")
    parser.add_argument("--long", type=int, default=1000, help="steps of the longest attack; 0 omits it")
    options = parser.parse_args()
    torch.manual_seed(0)
    model, data, radius = load_small_model(STANDARD), load_digits_data(options.images), options.radius
    inputs, labels = data.inputs, data.labels
    places = EveryPlace(model, inputs.shape[-1])
    _check(places, inputs[:1])
    undefended = attack(lambda images: margin(model(images)[None], labels)[0], inputs, inputs, radius, 200)
    with torch.no_grad():
        right = (model(undefended).argmax(1) == labels).float().mean()
    least = places.kept(inputs, labels)
    print("| start | loss | steps | accuracy | least so far |\n|---|---|---|---|---|")
    print(f"| - | the undefended model, by its margin | 200 | {right:.3f} | - |")
    print(f"| - | the defended one, clean | 0 | {least.mean():.3f} | {least.mean():.3f} |", flush=True)
    for start, loss, steps in LINES:
        if not (steps or options.long):
            continue
        rows = (least > LEFT).nonzero()[:, 0]
        clean, truth = inputs[rows], labels[rows]
        noisy = (clean + radius * (2 * torch.rand_like(clean) - 1)).clamp(0, 1)
        begin = {"clean": clean, "undefended": undefended[rows], "random": noisy}[start]
        examples = attack(_ascent(places, loss, truth), clean, begin, radius, steps or options.long)
        kept = places.kept(examples, truth)
        alone = least.clone()
        alone[rows] = kept
        least = torch.minimum(least, alone)
        print(f"| {start} | {loss} | {steps or options.long} | {alone.mean():.3f} | {least.mean():.3f} |", flush=True)
    every = inputs.repeat(len(places.boxes), 1, 1, 1, 1)
    known = attack(lambda images: margin(places.logits(images), labels), every, every, radius, 60)
    print(f"| clean | margin, the size and place known | 60 | {places.kept(known, labels).mean():.3f} | - |")


def _ascent(places: EveryPlace, loss: str, labels: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda images: LOSSES[loss](places.logits(images), labels, places.weights)


def _check(places: EveryPlace, image: Tensor) -> None:
    """Raise RuntimeError if an output of the defence differs from all outputs at the known sizes and places."""
    defended = defend(places.model, "resize-pad")
    with torch.no_grad():
        known = places.logits(image)[:, 0]
        drawn = torch.cat([defended(image) for _ in range(100)])
    if not (drawn[:, None] - known).abs().amax(2).amin(1).max() < 1e-3:
        raise RuntimeError("expected every answer of resize-pad to be at a known size and place, got another")


if __name__ == "__main__":
    main()
