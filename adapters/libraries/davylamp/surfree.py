"""SurFree: a decision-based attack that searches along circles in random low-frequency planes."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...criterion import is_fooled
from .losses import by_image, cosines, normalise, round_to_grid
from .queries import Model, query_logits
from .starting_images import noisy_starts

_HALVINGS = 10  # of a binary search, on the segment to the image or over the angle
_FINE = 0.01  # of the cosine: tolerance of the binary search over the angle
_KEPT = 100  # number of directions to which new ones are orthogonal
_WIDEST = math.pi / 2  # at a right angle the circle is back at the image
_TO_BOUNDARY, _SIGN, _ANGLE, _LAST, _DONE = range(5)


@torch.no_grad()
def surfree(  # noqa: PLR0913 - the parameters of the attack, by keyword
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    *,
    targets: Tensor | None = None,
    starting_points: Tensor | None = None,
    max_queries: int = 5000,
    angle: float = 30.0,
    trials: int = 1,
    quantise: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Run SurFree (Maho et al. 2021), a decision-based attack in l2 that does not estimate gradients.

    Let d be the distance from the image x to the best point so far, u the direction of this point, and v a random
    direction orthogonal to u. The points x + d cos(t) (cos(t) u + sin(t) v) lie on a circle through x and the best
    point, and are nearer to x than the best point. Points with angles t of both signs are queried, the largest angle
    first. If a point is adversarial, a binary search increases its angle, and the result becomes the best point. The
    largest angle grows by 2 % if a point of the circle was adversarial, and shrinks otherwise.

    The direction v contains the low frequencies of the image (the lower half of its cosine transform, with random
    signs), and is orthogonal to the last 100 directions. The last queries are used for a binary search towards the
    image. Each call of the model includes all images that have queries left.

    Args:
        model: maps images in [0, 1] to logits. Only the most likely class is used.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: true classes, shape (n,).
        targets: target classes, shape (n,), for a targeted attack.
        starting_points: adversarial images, shape (n, C, H, W). If None, Gaussian noise with standard deviation 0.5 is
            added to each image, up to 100 times.
        max_queries: largest number of queries for each image.
        angle: largest angle on the first circle, in degrees.
        trials: number of angles of each sign that are tried on a circle.
        quantise: whether to query only images that are rounded to 8 bits.
        generator: random generator for the directions. None for torch's default generator.

    Returns:
        The nearest adversarial image found for each image, shape (n, C, H, W). The clean image if none was found.
    """
    walk = _Walk(inputs, math.radians(angle), trials, max_queries, generator)

    def query(points: Tensor, rows: Tensor) -> Tensor:
        asked = round_to_grid(points) if quantise else points
        hit = is_fooled(query_logits(model, asked, rows), labels[rows], None if targets is None else targets[rows])
        walk.note(asked, rows, hit)
        return hit

    walk.start(query, starting_points)
    while len(rows := (walk.phase != _DONE).nonzero()[:, 0]):
        walk.learn(rows, query(walk.points(rows), rows))
    return walk.best


@dataclass
class _Plan:
    """State of the search on the current circle of each image, such as the bounds of a binary search."""

    low: Tensor
    high: Tensor
    count: Tensor  # angles tried in this plane, or halvings made


class _Walk:
    """State of the attack: the boundary point and the next query of each image."""

    def __init__(self, inputs: Tensor, angle: float, trials: int, most: int, generator: torch.Generator | None):
        count = len(inputs)
        self.inputs, self.best, self.point = inputs, inputs.clone(), inputs.clone()
        self.nearest = inputs.new_full((count,), torch.inf)
        self.queries = torch.zeros(count, dtype=torch.long, device=inputs.device)
        self.phase = torch.full_like(self.queries, _TO_BOUNDARY)
        self.plan = _Plan(torch.zeros_like(self.nearest), torch.ones_like(self.nearest), self.queries.clone())
        self.widest, self.most = torch.full_like(self.nearest, angle), most
        self.directions = _Directions(inputs, generator)
        self.side = torch.zeros_like(inputs)  # v
        signs = torch.tensor([1.0, -1.0], device=inputs.device)
        shares = torch.arange(trials, 0, -1, device=inputs.device) / trials
        self.shares = (shares[:, None] * signs).flatten()

    def note(self, asked: Tensor, rows: Tensor, hit: Tensor) -> None:
        """Count the queries, and store the nearest adversarial point of each image."""
        self.queries[rows] += 1
        distance = (asked - self.inputs[rows]).flatten(1).norm(dim=1)
        better = hit & (distance < self.nearest[rows])
        self.best[rows[better]], self.nearest[rows[better]] = asked[better], distance[better]

    def start(self, query: Callable[[Tensor, Tensor], Tensor], points: Tensor | None) -> None:
        """Start at the given points. If `points` is None, start at noisy copies of the images.

        Images for which no adversarial point is found are not attacked further.
        """
        if points is not None:
            self.point = points.clone()
            return
        self.point, missing = noisy_starts(query, self.inputs, self.most, self.directions.generator)
        self.phase[missing] = _DONE
        self.phase[self.queries >= self.most] = _DONE

    def points(self, rows: Tensor) -> Tensor:
        phase, plan = self.phase[rows], self.plan
        middle = (plan.low + plan.high)[rows] / 2
        change = self.point[rows] - self.inputs[rows]
        share = self.shares[plan.count[rows].clamp(max=len(self.shares) - 1)]
        on_circle = self._on_circle(rows, torch.where(phase == _SIGN, share * self.widest[rows], middle))
        straight = (phase == _TO_BOUNDARY) | (phase == _LAST)
        return (self.inputs[rows] + by_image(middle) * change).where(by_image(straight), on_circle)

    def _on_circle(self, rows: Tensor, angle: Tensor) -> Tensor:
        change = self.point[rows] - self.inputs[rows]
        distance = change.flatten(1).norm(dim=1)
        sideways = by_image(angle.sin() * distance) * self.side[rows]
        return (self.inputs[rows] + by_image(angle.cos()) * (by_image(angle.cos()) * change + sideways)).clamp(0, 1)

    def learn(self, rows: Tensor, hit: Tensor) -> None:
        plan, phase = self.plan, self.phase[rows]
        straight, trying = (phase == _TO_BOUNDARY) | (phase == _LAST), phase == _SIGN
        middle = (plan.low + plan.high)[rows] / 2
        asked = self.shares[plan.count[rows].clamp(max=len(self.shares) - 1)] * self.widest[rows]
        # The adversarial bound is `high` on the segment, where 1 is the point, and `low` over the angle.
        low = torch.where(straight, middle.where(~hit, plan.low[rows]), middle.where(hit, plan.low[rows]))
        high = torch.where(straight, middle.where(hit, plan.high[rows]), middle.where(~hit, plan.high[rows]))
        beyond = asked + asked.sign() * self.widest[rows] * 2 / len(self.shares)
        plan.low[rows] = torch.where(trying, asked, low)
        plan.high[rows] = torch.where(trying, beyond.clamp(-_WIDEST, _WIDEST), high)
        plan.count[rows] = (plan.count[rows] + 1).masked_fill(trying & hit, 0)
        self.phase[rows] = phase.masked_fill(trying & hit, _ANGLE)
        failed = trying & ~hit & (plan.count[rows] == len(self.shares))
        self.widest[rows] *= torch.where(failed, 0.98, torch.where(trying & hit, 1 / 0.98, 1.0))
        self.widest.clamp_(max=_WIDEST)
        self._move(rows, failed)

    def _move(self, rows: Tensor, failed: Tensor) -> None:
        """For each finished binary search, move the image to the adversarial bound, and start the next search."""
        plan, phase, left = self.plan, self.phase[rows], (self.most - self.queries)[rows]
        ended = (plan.count[rows] >= _HALVINGS) | (left <= 0)
        fine = (plan.high[rows].cos() - plan.low[rows].cos()).abs() <= _FINE
        turned = (phase == _ANGLE) & (ended | fine | (left <= _HALVINGS))
        arrived = ((phase == _TO_BOUNDARY) | (phase == _LAST)) & ended
        self.point[rows[turned]] = self._on_circle(rows[turned], plan.low[rows[turned]])
        there = rows[arrived]
        self.point[there] = self.inputs[there] + by_image(plan.high[there]) * (self.point[there] - self.inputs[there])
        closing = (left <= _HALVINGS) & (phase != _LAST) & (phase != _TO_BOUNDARY) | (arrived & (left <= _HALVINGS))
        self._begin(rows[closing & (phase != _LAST)], _LAST)
        self._begin(rows[(turned | arrived | failed) & ~closing & (phase != _LAST)], _SIGN)
        self.phase[rows[(left <= 0) | (arrived & (phase == _LAST))]] = _DONE

    def _begin(self, rows: Tensor, phase: int) -> None:
        self.phase[rows], self.plan.count[rows] = phase, 0
        self.plan.low[rows], self.plan.high[rows] = 0.0, 1.0
        if phase == _SIGN and len(rows):
            self.side[rows] = self.directions.draw(rows, self.point[rows] - self.inputs[rows])


class _Directions:
    """Draws random directions with the low frequencies of each image, orthogonal to the image's last directions."""

    def __init__(self, inputs: Tensor, generator: torch.Generator | None):
        self.generator = generator
        height, width = inputs.shape[2:]
        self.rows, self.columns = cosines(height).to(inputs), cosines(width).to(inputs)
        # The amplitudes as a transform without normalisation has them, which the authors' program uses.
        spectrum = 4 * self.rows @ inputs @ self.columns.T
        place = torch.arange(height)[:, None] + torch.arange(width)
        low = torch.zeros(height * width)
        low[place.flatten().argsort(stable=True)[: height * width // 2]] = 1
        self.amplitudes = spectrum.tanh() * low.view(height, width).to(inputs)
        # Few enough to leave other directions among the low frequencies of small images.
        self.kept = min(_KEPT, int(low.sum()) * inputs.shape[1] // 2)
        self.past = inputs.new_zeros(len(inputs), self.kept, inputs[0].numel())
        self.drawn = torch.zeros(len(inputs), dtype=torch.long, device=inputs.device)

    def draw(self, rows: Tensor, change: Tensor) -> Tensor:
        """Draw a unit direction for each image in `rows`, orthogonal to `change` and to the image's last directions."""
        shape, device = self.amplitudes[rows].shape, self.amplitudes.device
        signs = torch.randint(-1, 2, shape, generator=self.generator, device=device)
        coefficients = self.amplitudes[rows] * signs
        coefficients[..., 0, :] /= 2
        coefficients[..., 0] /= 2
        flat = normalise(self.rows.T @ coefficients @ self.columns).flatten(1)
        past = self.past[rows]
        flat = flat - torch.bmm(torch.bmm(flat[:, None], past.transpose(1, 2)), past)[:, 0]
        along = normalise(change).flatten(1)  # which the past ones are not all orthogonal to any more
        drawn = normalise((flat - (flat * along).sum(1, keepdim=True) * along).view(shape))
        self.past[rows, self.drawn[rows] % self.kept] = drawn.flatten(1)
        self.drawn[rows] += 1
        return drawn
