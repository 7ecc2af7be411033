"""Bisection over a grid of radii, synchronous over images.

A round is one run of the attack where the library takes a radius for each image, else one for each node.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ...adapters import AttackResult
from ...errors import AttackFailed, ModelFailed, Unsupported
from .nearest import NearestExamples


class Radii(NamedTuple):
    """The grid of radii, ascending from at(1) to at(count) = upper; whole numbers for l0."""

    upper: float
    count: int
    whole: bool

    def at(self, node: int) -> float:
        """The radius of a node."""
        if self.whole:
            return float(-(-node * int(self.upper) // self.count))
        return node * self.upper / self.count

    @property
    def halvings(self) -> int:
        """How often the grid can be halved: an image is run once more than that at most."""
        return (self.count - 1).bit_length()


# One run: the rows of its images, their radii, the number of the settings, and what each image has cost so far.
Attack = Callable[[Tensor, Tensor, int, Tensor], AttackResult]


class Bisection(NearestExamples):
    """State of a search: of each image the smallest successful node, the nearest example, and what it has cost.

    `best` starts as the result of the first settings at the largest radius on all images, and is kept up to date in
    place; `finish` completes it. `node` is one above the grid where nothing has succeeded; `choice` is the number of
    the settings that reached the node, or None; `runs` counts the runs of each image; `searched` is the largest radius
    that each was run at, with all settings where it was not fooled.
    """

    def __init__(
        self,
        best: AttackResult,
        attack: Attack,
        inputs: Tensor,
        radii: Radii,
        *,
        mixed: Sequence[bool],
        pixels: bool,
        progress: Callable[[int], object] | None,
    ):
        super().__init__(best, inputs, pixels=pixels)
        self._attack, self._radii = attack, radii
        self.node = torch.full_like(best.labels, radii.count + 1)
        self.choice: list[int | None] = [None] * len(best.labels)
        self._closed = ~best.attacked
        self._crashed = torch.zeros_like(self._closed)
        self._reached = torch.full_like(self.distance, torch.inf)
        self.searched = torch.zeros_like(self.distance).masked_fill(best.attacked, radii.upper)
        self._failed_at = 0  # the node that images were run at before, without success; above 0 after `extend`
        self._progress, self._planned = progress or (lambda _: None), (radii.halvings + 1) * len(mixed)
        self._mixed, self._done, self._reported = mixed, 0, 0
        self._keep(torch.arange(len(best.labels), device=best.labels.device), self.node - 1, 0, best)
        self._count(best.attacked.nonzero()[:, 0])

    def extend(self, radii: Radii) -> bool:
        """Go on at larger radii with the images that nothing has fooled; False if there is none."""
        left = self.best.attacked & self._reached.isinf() & ~self._crashed
        self._closed = ~left
        self._failed_at = int(radii.count * self._radii.upper / radii.upper)
        self._radii = radii
        self.node[left] = radii.count + 1
        return bool(left.any())

    def descend(self, number: int, max_queries: int | None) -> None:
        """Search one choice of settings below the best node of each image.

        The first has been run at the largest radius already; the others, and all after `extend`, are tried one node
        below the best first, and bisected where they succeed there.
        """
        low, high = torch.full_like(self.node, self._failed_at), self.node.clone()
        started = number == 0 and not self._failed_at
        aim = high // 2 if started else high - 1
        done = self._closed | (self.node > self._radii.count) if started else self._closed.clone()
        while True:
            done |= self._closed | (high - low <= 1)
            if max_queries is not None:
                done |= self.best.forwards + self.best.backwards >= max_queries
            if done.all():
                return
            for rows in self._groups((~done).nonzero()[:, 0], aim, number):
                nodes = aim[rows]
                hit = self._run(rows, nodes, number)
                high[rows] = high[rows].where(~hit, nodes)
                low[rows] = low[rows].where(hit, nodes)
            aim = (low + high) // 2

    def _groups(self, rows: Tensor, aim: Tensor, number: int) -> list[Tensor]:
        """The images of each run: all of them, or those with the same node."""
        if self._mixed[number]:
            return [rows]
        return [rows[aim[rows] == node] for node in aim[rows].unique()]

    def _run(self, rows: Tensor, nodes: Tensor, number: int) -> Tensor:
        """Attack these images at their nodes; whether it succeeded, shape (rows,) bool."""
        self._count(rows)
        return self._attempt(rows, nodes, number)

    def _attempt(self, rows: Tensor, nodes: Tensor, number: int) -> Tensor:
        try:
            spent = (self.best.forwards + self.best.backwards)[rows]
            radii = torch.tensor([self._radii.at(node) for node in nodes.tolist()], dtype=torch.double, device="cpu")
            result = self._attack(rows, radii, number, spent)
        except Unsupported:  # the library cannot be run at so small a radius: nothing is fooled there
            return torch.zeros_like(self._closed[rows])
        except (AttackFailed, ModelFailed) as error:
            if len(nodes.unique()) > 1:  # one radius may be to blame: each for itself
                hit = torch.zeros_like(self._closed[rows])
                for node in nodes.unique():
                    at_node = nodes == node
                    hit[at_node] = self._attempt(rows[at_node], nodes[at_node], number)
                return hit
            self._errors.append(str(error))
            self._closed[rows] = self._crashed[rows] = True
            for i in rows.tolist():
                self._flag(i, ("crashed",))
            return torch.zeros_like(self._closed[rows])
        self._add_costs(rows, result)
        self.searched[rows] = self.searched[rows].maximum(radii.to(self.searched))
        return self._keep(rows, nodes, number, result)

    def finish(self) -> AttackResult:
        """Report the images that needed fewer runs than planned; the best, with the radius of each image's node."""
        self._progress(int(self.best.attacked.sum()) - self._reported)
        budget = self._reached.where(self.best.attacked, 0.0)
        violations, errors = tuple(self._violations), tuple(self._errors)
        return replace(self.best, violations=violations, errors=errors, budget=budget)

    def _count(self, rows: Tensor) -> None:
        """Count one more run of these images, and report progress in whole images."""
        self.runs[rows] += 1
        self._done += len(rows)
        new = min(self._done // self._planned, int(self.best.attacked.sum())) - self._reported
        if new > 0:
            self._progress(new)
            self._reported += new

    def _keep(self, rows: Tensor, nodes: Tensor, number: int, result: AttackResult) -> Tensor:
        """Take what is nearer than the best so far; which images succeeded, shape (rows,) bool."""
        hit, _ = self._keep_nearer(rows, result)
        below = hit & (nodes < self.node[rows])
        lower = rows[below]
        self.node[lower] = nodes[below]
        reached = [self._radii.at(node) for node in nodes[below].tolist()]
        self._reached[lower] = torch.tensor(reached, dtype=torch.double, device=self._reached.device)
        for i in lower.tolist():
            self.choice[i] = number
        return hit
