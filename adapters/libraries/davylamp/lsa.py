"""LSA: a score-based local search for the few pixels that determine a prediction."""

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d

from ...criterion import is_fooled
from .queries import Model, query_logits

_POINTS = 256  # images per model call
_MOST = 128  # pixels tried per round
_SHARE = 0.1  # proportion of the pixels that the first round chooses from


@torch.no_grad()
def lsa(  # noqa: PLR0913 - the parameters of the attack, by keyword
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    *,
    targets: Tensor | None = None,
    steps: int = 150,
    pixels: int = 5,
    side: int = 5,
    probe: float = 0.25,
    factor: float = 1.5,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Run the local search of Narodytska and Kasiviswanathan 2017 (LocSearchAdv).

    Pixels are numbers in [-1/2, 1/2] here. In each round up to 128 pixels are tried, one at a time: all of their
    channels become `probe` times their sign. The `pixels` pixels with the lowest resulting probability of the label are
    multiplied by `factor`; a channel that leaves the range wraps around to its other end. The next round tries the
    squares around these pixels. The first round tries a random tenth of the image.

    Args:
        model: maps images in [0, 1] to logits; no gradient is used.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: their labels, shape (n,).
        targets: target classes, shape (n,); the probability of the target is then maximised.
        steps: number of rounds; a round that tries k pixels costs k + 1 forward passes.
        pixels: number of pixels changed in each round, t in the paper.
        side: half of the side of the squares, d in the paper.
        probe: value that a tried pixel gets, p in the paper.
        factor: factor of the change, r in the paper, in [0, 2].
        generator: random generator for the choice of pixels, or None for torch's default one.

    Returns:
        The adversarial image of each image, shape (n, C, H, W); the clean image if none was found.
    """
    count, _, height, width = inputs.shape
    image, best = inputs.flatten(2) - 0.5, inputs.clone()
    goal = labels if targets is None else targets
    rows = torch.arange(count, device=inputs.device)
    near = torch.ones(count, height * width, dtype=torch.bool, device=inputs.device)
    first = max(1, min(_MOST, int(_SHARE * height * width)))
    for step in range(steps):
        place, tried = _choose(near[rows], _MOST if step else first, generator)
        owners, pixel = rows[tried.nonzero()[:, 0]], place[tried]
        lowered = torch.full(place.shape, torch.inf, device=inputs.device)
        scores = []
        for few, spots in zip(owners.split(_POINTS), pixel.split(_POINTS), strict=True):
            logits = query_logits(model, _probe(image[few], spots, probe).view(-1, *inputs.shape[1:]), few)
            scores.append(logits.softmax(1).gather(1, goal[few, None])[:, 0])
        lowered[tried] = torch.cat(scores) if targets is None else -torch.cat(scores)
        order = lowered.argsort(dim=1, stable=True)[:, :pixels]
        picked = torch.zeros_like(near[rows]).scatter(1, place.gather(1, order), tried.gather(1, order))
        image[rows] = _cycle(image[rows] * factor).where(picked[:, None], image[rows])
        points = (image[rows] + 0.5).view(-1, *inputs.shape[1:])
        hit = is_fooled(query_logits(model, points, rows), labels[rows], None if targets is None else targets[rows])
        best[rows[hit]] = points[hit]
        window = picked.view(-1, 1, height, width).to(inputs)
        near[rows] = max_pool2d(window, 2 * side + 1, stride=1, padding=side).flatten(1) > 0
        rows = rows[~hit]
        if not len(rows):
            break
    return best


def _choose(near: Tensor, most: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Choose up to `most` random allowed pixels, shape (m, most), with a mask of the valid entries."""
    keys = torch.rand(near.shape, generator=generator, device=near.device).masked_fill(~near, -1)
    highest = keys.topk(min(most, near.shape[1]), dim=1)
    return highest.indices, highest.values >= 0


def _probe(image: Tensor, pixel: Tensor, probe: float) -> Tensor:
    """Return images (m, C, H W) in [0, 1], each with one of its pixels replaced."""
    where = pixel[:, None, None].expand(-1, image.shape[1], 1)
    return image.scatter(2, where, probe * image.gather(2, where).sign()) + 0.5


def _cycle(values: Tensor) -> Tensor:
    """Wrap values outside [-1/2, 1/2] around to the other end."""
    return values + (values < -0.5).to(values) - (values > 0.5).to(values)
