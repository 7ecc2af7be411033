"""Records the distance of the nearest example of each image after each number of queries."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..criterion import is_fooled
from ..result import AttackResult
from ..threat_model import Norm, ThreatModel
from .judge import UNCHANGED, perturbation_norm, within_threat_model


class CurvePoint(NamedTuple):
    """A point of a curve: the distance of an image's nearest example after a number of queries (`passes`)."""

    passes: int
    distance: float


class Trace:
    """Nearest example of each image, over any number of library calls.

    A queried point counts as an example if it fools the model, is finite, lies in [0, 1], and differs from the clean
    image by more than rounding. Its prediction was computed in a batch of the attack. An example must therefore be
    judged again before it is used.

    `nearest` has the examples, (N, C, H, W). `distance` has their distances, (N,), float64. It is inf for an image
    without an example. `curves` has a point for each decrease of an image's distance.

    Args:
        inputs: clean images, shape (N, C, H, W).
        labels: labels of the images, shape (N,).
        targets: target classes, shape (N,). None for an untargeted attack.
        norm: norm of the distances. "unrestricted" is measured in l2.
        below: only examples nearer than this distance are recorded, shape (N,), float64. None to record all examples.
    """

    def __init__(
        self, inputs: Tensor, labels: Tensor, targets: Tensor | None, norm: Norm, *, below: Tensor | None = None
    ):
        self._inputs, self._labels, self._targets, self._rules = inputs, labels, targets, ThreatModel(norm)
        self.nearest = inputs.clone()
        none = torch.full((len(inputs),), torch.inf, dtype=torch.double, device=inputs.device)
        self.distance, self._below = none, none if below is None else below.to(none)
        self.curves: list[list[CurvePoint]] = [[] for _ in range(len(inputs))]

    @torch.no_grad()
    def note(self, asked: Tensor, logits: Tensor, images: Tensor, passes: Tensor) -> None:
        """Record query results.

        Args:
            asked: the queried images, shape (rows, C, H, W). Images of a different size are ignored.
            logits: the model's outputs, shape (rows, K).
            images: index of the image to which each row belongs, shape (rows,).
            passes: number of queries that this image has used, including this one, shape (rows,).
        """
        if asked.shape[1:] != self._inputs.shape[1:]:
            return
        labels = self._labels[images]
        hit = is_fooled(logits.to(labels.device), labels, None if self._targets is None else self._targets[images])
        rows = hit.nonzero()[:, 0]
        asked, images, passes = asked[rows.to(asked.device)].to(self._inputs), images[rows], passes[rows]
        clean = self._inputs[images]
        change = asked.double() - clean.double()
        distance = perturbation_norm(change, self._rules.norm)
        valid = within_threat_model(clean, asked, self._rules) & (perturbation_norm(change, "linf") > UNCHANGED)
        limit = torch.minimum(self.distance, self._below)[images]
        for row in (valid & (distance < limit)).nonzero()[:, 0].tolist():
            image, size = int(images[row]), float(distance[row])
            if size < float(self.distance[image]):  # several rows may belong to one image
                self.nearest[image], self.distance[image] = asked[row], size
                self.curves[image].append(CurvePoint(int(passes[row]), size))

    def of_call(self, images: Tensor, spent: Tensor) -> "CallTrace":
        """Return a recorder for a library call on some of the images.

        Args:
            images: indices of the images, shape (n,).
            spent: queries that each image used before the call, shape (n,).
        """
        return CallTrace(self, images, spent)


class CallTrace:
    """The part of a trace for one library call. Image i of the call is image `images[i]` of the trace."""

    def __init__(self, trace: Trace, images: Tensor, spent: Tensor):
        self._trace, self._images, self._spent = trace, images, spent

    def note(self, asked: Tensor, logits: Tensor, owners: Tensor, passes: Tensor) -> None:
        """Record the results of a query.

        Args:
            asked: the queried images, shape (rows, C, H, W).
            logits: the model's outputs, shape (rows, K).
            owners: index in the call of the image to which each row belongs, shape (rows,).
            passes: queries that each image of the call has used, shape (n,).
        """
        owners = owners.to(self._images.device)
        so_far = (self._spent + passes.to(self._spent.device))[owners]
        self._trace.note(asked, logits, self._images[owners], so_far)


def curves_of(trace: Trace, result: AttackResult) -> tuple[tuple[CurvePoint, ...], ...]:
    """Return the curve of distance against queries for each image of a run. It is empty for an invalid result.

    If the returned example is nearer than all queried points, it is the last point of the curve.
    """
    costs, distances = (result.forwards + result.backwards).tolist(), result.distance.tolist()
    curves = []
    for image, (curve, cost, distance) in enumerate(zip(trace.curves, costs, distances, strict=True)):
        nearer = bool(result.success[image]) and (not curve or distance < curve[-1].distance)
        returned = [CurvePoint(cost, distance)] if nearer else []
        curves.append(() if result.violations[image] else (*curve, *returned))
    return tuple(curves)
