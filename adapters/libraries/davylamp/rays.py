"""RayS: a decision-based attack that searches for the direction of signs in which the decision boundary is nearest."""

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from ...criterion import is_fooled
from .queries import Model, query_logits


@torch.no_grad()
def rays(
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    *,
    targets: Tensor | None = None,
    max_queries: int = 10_000,
    tolerance: float = 1e-3,
) -> Tensor:
    """Run RayS (Chen and Gu 2020), which finds the direction in {-1, 1}^d in which the decision boundary is nearest.

    The components are divided into blocks. In each step, the signs of one block are flipped. The flip is accepted if
    the point in the new direction, at the smallest distance so far, fools the model. This costs one query. A binary
    search then finds the new smallest distance. When all blocks have been tested, each block is halved. The search for
    an image ends when blocks are single components and no flip was accepted, because further queries would repeat
    earlier ones. Each call of the model includes all unfinished images.

    Args:
        model: maps images in [0, 1] to logits. Only the most likely class is used.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: true classes, shape (n,).
        targets: target classes, shape (n,), for a targeted attack.
        max_queries: largest number of queries for each image.
        tolerance: tolerance of the binary search, an l2 distance.

    Returns:
        The nearest adversarial image found for each image, shape (n, C, H, W). The clean image if none was found.
    """
    flat, best = inputs.flatten(1), inputs.flatten(1).clone()
    search = _RaysState.start(flat)
    while len(search.rows):
        points = (flat[search.rows] + search.lengths()[:, None] * search.attempt).clamp(0, 1)
        logits = query_logits(model, points.view(-1, *inputs.shape[1:]), search.rows)
        wanted = None if targets is None else targets[search.rows]
        nearer = search.learn(is_fooled(logits, labels[search.rows], wanted), tolerance, max_queries)
        rows = search.rows[nearer]
        best[rows] = (flat[rows] + search.radius[nearer, None] * search.direction[nearer]).clamp(0, 1)
        search = search.of(~search.is_done(max_queries))
    return best.view_as(inputs)


@dataclass
class _RaysState:
    """State of the search. Every field has one entry for each unfinished image."""

    rows: Tensor  # which image of the batch
    direction: Tensor  # the best one so far, of length 1 and with components of one size, shape (m, d)
    radius: Tensor  # l2 distance of the boundary in that direction
    attempt: Tensor  # the best direction with the signs of one block flipped, shape (m, d)
    low: Tensor  # of the binary search along the attempt
    high: Tensor
    searching: Tensor  # whether that search is under way
    level: Tensor  # there are 2 ** level blocks
    block: Tensor  # the block with flipped signs
    failures: Tensor  # flips of a single component since the last accepted one
    queries: Tensor

    @classmethod
    def start(cls, flat: Tensor) -> "_RaysState":
        zero = flat.new_zeros(len(flat))
        whole = torch.zeros_like(zero, dtype=torch.long)
        rows = torch.arange(len(flat), device=flat.device)
        same = torch.full_like(flat, 1 / math.sqrt(flat.shape[1]))
        return cls(rows, same, zero + torch.inf, -same, zero, zero, whole.bool(), whole, whole, whole, whole)

    def of(self, images: Tensor) -> "_RaysState":
        if images.all():
            return self
        return _RaysState(*(getattr(self, field.name)[images] for field in fields(self)))

    @property
    def _size(self) -> int:
        return self.direction.shape[1]

    def _widths(self) -> Tensor:
        blocks = 2**self.level
        return (self._size + blocks - 1) // blocks

    def lengths(self) -> Tensor:
        """Return the distances of the next queries. Infinite for images without an adversarial point so far."""
        return torch.where(self.searching, (self.low + self.high) / 2, self.radius)

    def learn(self, hit: Tensor, tolerance: float, max_queries: int) -> Tensor:
        """Update the search with the results of the queried points, and return which images improved."""
        self.queries = self.queries + 1
        middle, began = (self.low + self.high) / 2, ~self.searching & hit
        low, high = middle.where(self.searching & ~hit, self.low), middle.where(self.searching & hit, self.high)
        self.low = low.masked_fill(began, 0)
        self.high = self.radius.clamp(max=math.sqrt(self._size)).where(began, high)
        close = (self.high - self.low <= tolerance) | (self.queries >= max_queries)
        ended = self.searching & close | ~self.searching & ~hit
        nearer = (self.searching | began) & close & (self.high < self.radius)
        self.radius = self.high.where(nearer, self.radius)
        self.direction[nearer] = self.attempt[nearer]
        single = ended & (self._widths() == 1)
        self.failures = torch.where(single, self.failures + 1, self.failures).masked_fill(nearer, 0)
        self.searching = (self.searching | began) & ~ended
        self._advance(ended)
        return nearer

    def _advance(self, ended: Tensor) -> None:
        """Move to the next block or, after the last one, halve the blocks."""
        last = (self.block + 1) * self._widths() >= self._size
        smaller = (self.level + 1).where(self._widths() > 1, self.level)
        self.level = smaller.where(ended & last, self.level)
        self.block = torch.where(ended, (self.block + 1).masked_fill(last, 0), self.block)
        images = ended.nonzero()[:, 0]
        width = self._widths()[images, None]
        place = torch.arange(self._size, device=width.device) - self.block[images, None] * width
        best = self.direction[images]
        self.attempt[images] = torch.where((place >= 0) & (place < width), -best, best)

    def is_done(self, max_queries: int) -> Tensor:
        """Return whether the search for each image has ended: no queries are left, or no flip can help."""
        return (self.queries >= max_queries) | (self.failures >= self._size)
