"""The nearest judged example of each image over any number of runs, and what all of them cost."""

import torch
from torch import Tensor

from ...adapters import AttackResult
from ...adapters.running.judge import distances_of, quantise

_OF_AN_EXAMPLE = ("adv_inputs", "adv_logits", "success", "success_8bit")


class NearestExamples:
    """State of a search.

    `best` is kept up to date in place; `distance` is how far its examples are, (N,) float64, inf where nothing has
    fooled the model; `runs` counts the runs of each image.

    Args:
        best: a result to begin with, whose examples count once they are kept.
        inputs: clean images, shape (N, C, H, W).
        pixels: success and distance count on the examples rounded to 8 bits.
    """

    def __init__(self, best: AttackResult, inputs: Tensor, *, pixels: bool):
        self.best, self._inputs, self._pixels = best, inputs, pixels
        self.distance = torch.full_like(best.distances.l2, torch.inf)
        self.runs = torch.zeros_like(best.labels)
        self._violations, self._errors = list(best.violations), list(best.errors)

    def _add_costs(self, rows: Tensor, result: AttackResult) -> None:
        """Count what a run on some images cost."""
        self.best.forwards[rows] += result.forwards
        self.best.backwards[rows] += result.backwards
        self.best.seconds[rows.cpu()] += result.seconds
        self._errors += result.errors

    def _keep_nearer(self, rows: Tensor, result: AttackResult) -> tuple[Tensor, Tensor]:
        """Take what is nearer than the best so far; which images succeeded, and which were taken, (rows,) bool each."""
        hit, distance = result.success, result.distance
        if self._pixels:
            hit = result.success_8bit
            shift = distances_of(quantise(self._inputs[rows]), quantise(result.adv_inputs))
            distance = getattr(shift, result.threat_model.norm)
        nearer = hit & (distance < self.distance[rows])
        improved = rows[nearer]
        self.distance[improved] = distance[nearer]
        pairs = [(getattr(self.best, name), getattr(result, name)) for name in _OF_AN_EXAMPLE]
        if self.best.draws_fooled is not None:
            pairs.append((self.best.draws_fooled, result.draws_fooled))
        for kept, new in (*pairs, *zip(self.best.distances, result.distances, strict=True)):
            kept[improved] = new[nearer]
        for image, taken, kinds in zip(rows.tolist(), nearer.tolist(), result.violations, strict=True):
            if taken:
                self._violations[image] = kinds
            elif kinds:
                self._flag(image, kinds)
        return hit, nearer

    def _flag(self, image: int, kinds: tuple[str, ...]) -> None:
        """An image that nothing has fooled yet is as suspect as each of its runs."""
        if self.distance[image].isinf():
            self._violations[image] = tuple(dict.fromkeys((*self._violations[image], *kinds)))
