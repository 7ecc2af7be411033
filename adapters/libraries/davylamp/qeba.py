"""QEBA: a decision-based attack like HopSkipJump, but with random directions from a subspace of smooth images."""

import math

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from ...criterion import is_fooled
from .losses import by_image, cosines, normalise
from .queries import Model, query_logits
from .starting_images import noisy_starts

_POINTS = 256  # images per model call
_SAMPLES = 100  # samples of the first estimate; later ones have sqrt(step) times as many
_NEAR = (
    0.01  # query radius around the boundary point, relative to the distance; over sqrt(d), tolerance of a binary search
)
_FIRST_NEAR = 0.1  # the same in the first step, in pixels
_SHORTENINGS = 10  # halvings of a step before it is abandoned
_REDUCTIONS = 2, 4  # side of the image over that of the subspace, as used by the authors for CIFAR-10 and ImageNet
_LARGE = 64  # side of the image from which the second is taken


@torch.no_grad()
def qeba(  # noqa: PLR0913 - the parameters of the attack, by keyword
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    *,
    targets: Tensor | None = None,
    starting_points: Tensor | None = None,
    max_queries: int = 5000,
    basis: str = "resize",
    subspace: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Run QEBA (Li et al. 2020) in l2, in its variant S (space) or F (frequency).

    In each step, points in random directions from a boundary point are queried. The normal of the decision boundary is
    estimated by a weighted mean of these directions. The weight of a direction is 1 if its point is adversarial and 0
    otherwise, minus the mean of these numbers over all directions. Then the boundary point moves along the normal. In
    step k, the length of the move is the distance / sqrt(k), halved until the new point is adversarial. A binary search
    towards the clean image ends the step. All images take their steps together. If the remaining queries do not suffice
    for another step, they are not used.

    Args:
        model: maps images in [0, 1] to logits. Only the most likely class is used.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: true classes, shape (n,).
        targets: target classes, shape (n,), for a targeted attack.
        starting_points: adversarial images, shape (n, C, H, W). If None, Gaussian noise with standard deviation 0.5 is
            added to each image, up to 100 times.
        max_queries: largest number of queries for each image.
        basis: subspace from which directions are drawn. "resize" (QEBA-S): small images, enlarged bilinearly. "dct"
            (QEBA-F): low frequencies of the cosine transform. "px": all directions, as in HopSkipJump.
        subspace: side of the small images, or of the block of frequencies. None for half of the image's side, or for a
            quarter if the side has at least 64 pixels.
        generator: random generator for the directions. None for torch's default generator.

    Returns:
        The nearest adversarial image found for each image, shape (n, C, H, W). The clean image if none was found.
    """
    walk = _AtBoundary(model, inputs, labels, targets, max_queries)
    directions = Subspace(inputs, basis, subspace, generator)
    rows = walk.start(starting_points, generator)
    step = 0
    while len(rows := rows[walk.left[rows] > walk.reserve]):
        step += 1
        distance = (walk.point[rows] - inputs[rows]).flatten(1).norm(dim=1)
        near = torch.full_like(distance, _FIRST_NEAR) if step == 1 else _NEAR * distance
        few = (walk.left[rows] - walk.reserve).clamp(max=int(_SAMPLES * math.sqrt(step)))
        normal = _estimate(walk, directions, rows, near, few)
        walk.move(rows, normal, distance / math.sqrt(step))
    return walk.best


class _AtBoundary:
    """State of the attack: the boundary point of each image, the nearest adversarial image, and remaining queries."""

    def __init__(self, model: Model, inputs: Tensor, labels: Tensor, targets: Tensor | None, most: int):
        self.model, self.inputs, self.labels, self.targets = model, inputs, labels, targets
        self.best, self.point = inputs.clone(), inputs.clone()
        self.nearest = inputs.new_full((len(inputs),), torch.inf)
        self.left = torch.full_like(labels, most)
        self.halvings = math.ceil(math.log2(math.sqrt(inputs[0].numel()) / _NEAR))
        self.reserve = self.halvings + _SHORTENINGS  # what the end of a step may cost

    def query(self, points: Tensor, rows: Tensor) -> Tensor:
        """Return whether points (m, C, H, W) of images `rows` are adversarial. The nearest of them are stored."""
        hit = torch.cat([self._hits(*part) for part in zip(points.split(_POINTS), rows.split(_POINTS), strict=True)])
        self.left.index_add_(0, rows, -torch.ones_like(rows))
        distance = (points - self.inputs[rows]).flatten(1).norm(dim=1).where(hit, torch.inf)
        order = distance.argsort(descending=True)  # of several of one image the nearest is written last
        order = order[distance[order] < self.nearest[rows[order]]]
        for_image = torch.full_like(self.left, -1)
        for_image.scatter_reduce_(0, rows[order], torch.arange(len(order), device=rows.device), "amax")
        nearer = (for_image >= 0).nonzero()[:, 0]
        chosen = order[for_image[nearer]]
        self.best[nearer], self.nearest[nearer] = points[chosen], distance[chosen]
        return hit

    def _hits(self, points: Tensor, rows: Tensor) -> Tensor:
        wanted = None if self.targets is None else self.targets[rows]
        return is_fooled(query_logits(self.model, points, rows), self.labels[rows], wanted)

    def start(self, points: Tensor | None, generator: torch.Generator | None) -> Tensor:
        """Move the starting points to the decision boundary. If `points` is None, start at noisy copies of the images.

        Returns:
            The indices of the images that have an adversarial point.
        """
        rows = torch.arange(len(self.inputs), device=self.inputs.device)
        if points is None:
            self.point, missing = noisy_starts(self.query, self.inputs, int(self.left.max()), generator)
            rows = rows[~torch.isin(rows, missing)]
        else:
            self.point = points.clone()
        self._to_boundary(rows)
        return rows

    def move(self, rows: Tensor, normal: Tensor, length: Tensor) -> None:
        """Move along the normal (m, C, H, W), and then back to the decision boundary.

        The length of the move is halved until the new point is adversarial.
        """
        places = torch.arange(len(rows), device=rows.device)
        for _ in range(_SHORTENINGS):
            there = self.point[rows[places]] + by_image(length[places]) * normal[places]
            hit = self.query(there.clamp(0, 1), rows[places])
            self.point[rows[places[hit]]] = there[hit].clamp(0, 1)
            places = places[~hit]
            length = length / 2
            if not len(places):
                break
        self._to_boundary(rows)

    def _to_boundary(self, rows: Tensor) -> None:
        low, high = self.nearest.new_zeros(len(rows)), self.nearest.new_ones(len(rows))
        change = self.point[rows] - self.inputs[rows]
        for _ in range(self.halvings):
            asking = (self.left[rows] > 0).nonzero()[:, 0]
            if not len(asking):
                break
            middle = (low + high)[asking] / 2
            hit = self.query(self.inputs[rows[asking]] + by_image(middle) * change[asking], rows[asking])
            low[asking], high[asking] = middle.where(~hit, low[asking]), middle.where(hit, high[asking])
        self.point[rows] = self.inputs[rows] + by_image(high) * change


def _estimate(walk: _AtBoundary, directions: "Subspace", rows: Tensor, near: Tensor, few: Tensor) -> Tensor:
    """Estimate the unit normal of the decision boundary at the points of images `rows`, with `few` queries each."""
    noise = torch.zeros_like(walk.point[rows])
    weighted, total = noise.clone(), torch.zeros_like(near)
    most, size = int(few.max()), max(1, _POINTS // len(rows))
    for first in range(0, most, size):
        count = min(size, most - first)
        drawn = directions.draw(count * len(rows)).view(count, *noise.shape)
        points = (walk.point[rows] + near[:, None, None, None] * drawn).clamp(0, 1)
        asked = (first + torch.arange(count, device=rows.device))[:, None] < few
        sign = torch.zeros(asked.shape, dtype=noise.dtype, device=noise.device)
        hit = walk.query(points[asked], rows.expand(count, -1)[asked])
        sign[asked] = 2 * hit.to(sign) - 1
        change = (points - walk.point[rows]) / near[:, None, None, None]
        weighted += (sign[..., None, None, None] * change).sum(0)
        noise += (asked[..., None, None, None] * change).sum(0)
        total += sign.sum(0)
    mean = total / few
    return normalise(weighted - by_image(mean.where(mean.abs() < 1, 0)) * noise)


class Subspace:
    """Draws random unit directions from the subspace."""

    def __init__(self, inputs: Tensor, basis: str, subspace: int | None, generator: torch.Generator | None):
        self.shape, self.basis, self.generator, self.like = inputs.shape[1:], basis, generator, inputs
        share = _REDUCTIONS[min(self.shape[1:]) >= _LARGE]
        whole = basis == "px"
        sides = [side if whole else min(side, subspace or max(1, side // share)) for side in self.shape[1:]]
        self.sides = sides
        self.waves = [
            (cosines(whole) * torch.tensor([1 / math.sqrt(2), *[1.0] * (whole - 1)])[:, None])[:part].to(inputs)
            for whole, part in zip(self.shape[1:], sides, strict=True)
        ]

    def draw(self, count: int) -> Tensor:
        """Draw `count` directions, shape (count, C, H, W)."""
        small = torch.randn(
            (count, self.shape[0], *self.sides),
            generator=self.generator,
            device=self.like.device,
            dtype=self.like.dtype,
        )
        if self.basis == "resize":
            return normalise(interpolate(small, self.shape[1:], mode="bilinear", align_corners=False))
        return normalise(self.waves[0].T @ small @ self.waves[1] if self.basis == "dct" else small)
