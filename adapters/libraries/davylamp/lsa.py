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

    Pixel values are shifted to [-1/2, 1/2]. In each round, up to 128 pixels are tested, one at a time. To test a pixel,
    its channels are set to `probe` times their signs. Those `pixels` pixels that lower the probability of the label
    most are then multiplied by `factor`. Values outside the range wrap around to the other end. The first round tests a
    random tenth of the pixels. Each later round tests the pixels in squares around those that were changed last.

    Args:
        model: maps images in [0, 1] to logits. No gradient is used.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: true classes, shape (n,).
        targets: target classes, shape (n,). If given, the probability of the target is maximised instead of minimising
            the probability of the label.
        steps: number of rounds. A round that tests k pixels costs k + 1 forward passes.
        pixels: number of pixels that are changed in each round, t in the paper.
        side: half of the side of the squares, d in the paper.
        probe: absolute value to which the channels of a tested pixel are set, p in the paper.
        factor: factor by which changed pixels are multiplied, r in the paper, in [0, 2].
        generator: random generator for the choice of pixels. None for torch's default generator.

    Returns:
        The adversarial image found for each image, shape (n, C, H, W). The clean image if none was found.
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
    """Choose up to `most` random pixels per image among those in `near`.

    Returns:
        The indices of the pixels, shape (m, most), and a mask of the valid entries.
    """
    keys = torch.rand(near.shape, generator=generator, device=near.device).masked_fill(~near, -1)
    highest = keys.topk(min(most, near.shape[1]), dim=1)
    return highest.indices, highest.values >= 0


def _probe(image: Tensor, pixel: Tensor, probe: float) -> Tensor:
    """Return images (m, C, H W) in [0, 1], in each of which one pixel is replaced for a test."""
    where = pixel[:, None, None].expand(-1, image.shape[1], 1)
    return image.scatter(2, where, probe * image.gather(2, where).sign()) + 0.5


def _cycle(values: Tensor) -> Tensor:
    return values + (values < -0.5).to(values) - (values > 0.5).to(values)
