"""Counts an attack's queries per image, and ends the attack when the query budget is used up.

A query is one pass of one image through the model, forward or backward. A batch of b images is b queries. An output
that is the mean over k samples of a random model (`Classifier.eot`) is k queries.

Every row of a query is counted for one image. There are three cases:

- If an image is attacked alone, all rows belong to it.
- With `order="kept"`, the library preserves the order of the batch. Row r of a call belongs to image r modulo the
  number of images, so the batch may also be stacked several times.
- With `order="content"`, the library shuffles or shrinks the batch. A row belongs to the clean image nearest to it in
  l2. `separable_groups` divides images into batches for which this is correct for every point in the ball.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ..models.classifier import PASS_SIZE, Classifier
from ..models.images import check_counted, check_model_input
from ..threat_model import ThreatModel
from ..torch_state import model_autocast
from .budget import QueryBudget, QueryBudgetExhausted
from .judge import BOX_TOLERANCE, UNCHANGED
from .trace import CallTrace

__all__ = [
    "ModelNotDifferentiable",
    "QueryBudgetExhausted",
    "QueryCounter",
    "QueryObservations",
    "separable_groups",
]


class QueryCounter(nn.Module):
    """A wrapped classifier that an attack gets as its model.

    It returns the same logits, and counts every query for its image.

    Args:
        classifier: the model under attack.
        inputs: the clean images of this library call, shape (n, C, H, W).
        labels: labels of the images, shape (n,).
        threat_model: defines which examples are valid. If the budget runs out, the best valid example is selected.
        targets: target classes, shape (n,). None for an untargeted attack.
        order: "kept" or "content", see the description of the module.
        max_queries: forward plus backward passes that each image may still use, shape (n,). None for no limit. Further
            queries of an image return its last output, without a gradient. If no image has queries left,
            `QueryBudgetExhausted` ends the attack. If no query would be left for the backward pass, the forward pass
            has no gradient.
        needs_gradients: whether the attack is white-box. For a model without gradients, `ModelNotDifferentiable` is
            then raised.
        scores: converts logits to the scores that a score-based attack gets, which `seen` records. None for other
            attacks.
        trace: records the nearest example of each image. None to record nothing.
        asked: called with the number of queries after each model call. None to call nothing.
        precision: precision of the passes, see the module `precision`. None for torch's settings.
    """

    def __init__(  # noqa: PLR0913 - what is attacked by position, the choices by keyword
        self,
        classifier: Classifier,
        inputs: Tensor,
        labels: Tensor,
        threat_model: ThreatModel,
        *,
        targets: Tensor | None = None,
        order: Literal["kept", "content"] = "kept",
        max_queries: Tensor | None = None,
        needs_gradients: bool = False,
        scores: Callable[[Tensor], Tensor] | None = None,
        trace: CallTrace | None = None,
        asked: Callable[[int], object] | None = None,
        precision: str | None = None,
    ):
        super().__init__()
        self.classifier = classifier
        self._images = inputs.detach()
        self._order, self._needs_gradients, self._scores, self._trace = order, needs_gradients, scores, trace
        self._asked, self._precision = asked, precision
        self._draws = classifier.eot if classifier.random else 1
        # Calls on the whole batch are counted in plain integers: nothing to allocate, nothing to wait for on a GPU.
        self._whole = {"forwards": 0, "backwards": 0}
        self._single = {kind: torch.zeros(len(inputs), dtype=torch.long, device=inputs.device) for kind in self._whole}
        allowed = (labels, targets, threat_model)
        self.budget = (
            None if max_queries is None else QueryBudget(max_queries, self._images, *allowed, cost=self._draws)
        )
        self._rows: Tensor | None = None
        self.seen = QueryObservations(self._images)
        self.training = False

    def best_examples(self, returned: Tensor | None = None) -> Tensor:
        """Return the final example of each image, shape (n, C, H, W).

        An image without queries left gets its best example so far. Any other image gets the image that the attack
        returned.

        Args:
            returned: images that the attack returned, same shape. None if the attack was stopped. Every image then gets
                its best example so far.
        """
        if self.budget is None:
            return self._images if returned is None else returned
        if returned is None:
            return self.budget.best
        return self.budget.best.where(self.budget.denied.view(-1, 1, 1, 1), returned)

    def restrict(self, rows: Tensor) -> None:
        """Restrict later calls to some images. Row i of a call is then a version of image rows[i].

        Args:
            rows: indices of the images, shape (m,).
        """
        self._rows = rows

    @property
    def num_classes(self) -> int:
        """Number of classes of the model."""
        return self.classifier.num_classes or 0

    @property
    def forwards(self) -> Tensor:
        """Number of forward queries of each image so far, shape (n,), int64."""
        return self._single["forwards"] + self._whole["forwards"]

    @property
    def backwards(self) -> Tensor:
        """Number of backward queries of each image so far, shape (n,), int64."""
        return self._single["backwards"] + self._whole["backwards"]

    def train(self, mode: bool = True) -> "QueryCounter":  # noqa: ARG002 - the signature is torch's
        """Leave the model in evaluation mode, whatever `mode` is."""
        return super().train(False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits of `inputs`, and count the queries."""
        check_model_input(inputs)
        return self.query(inputs, self._owners(inputs))

    def query(self, inputs: Tensor, owners: Tensor | None) -> Tensor:
        """Return the logits of a query, and count the query for its images.

        Args:
            inputs: rows of the query, shape (rows, C, H, W).
            owners: index of the image of each row, shape (rows,). None if row i belongs to image i.
        """
        if self.budget is not None:
            if owners is None:
                owners = torch.arange(len(self._images), device=self._images.device)
            return self._query_within_budget(inputs, owners, self.budget)
        self._count("forwards", owners)
        logits = self._ask(inputs, owners)
        if logits.requires_grad:
            logits.register_hook(lambda gradient: self._count_backwards(gradient, owners))
        return logits

    def _count_backwards(self, gradient: Tensor, owners: Tensor | None) -> None:
        check_counted(gradient)
        self._count("backwards", owners)

    def query_rows(self, inputs: Tensor, rows: Tensor) -> Tensor:
        """Return the logits of a query whose row i is a version of image rows[i] of the library's batch."""
        return self.query(inputs, rows if self._rows is None else self._rows[rows])

    def _ask(self, inputs: Tensor, owners: Tensor | None) -> Tensor:
        """Compute the logits of a query.

        For a random model, compute their mean over samples (EOT, Athalye et al. 2018).

        Each sample is a query.
        """
        self.seen.note_inputs(inputs, owners)
        answers = [self._draw(inputs, owners) for _ in range(self._draws)]
        logits = answers[0] if len(answers) == 1 else torch.stack(answers).mean(0)
        self.seen.note_logits(logits, inputs, owners)
        if self._scores is not None:
            self.seen.note_scores(self._scores(logits.detach()), owners)
        if self._trace is not None:
            owners = torch.arange(len(self._images), device=self._images.device) if owners is None else owners
            self._trace.note(inputs.detach(), logits.detach(), owners, self.forwards + self.backwards)
        return logits

    def _draw(self, inputs: Tensor, owners: Tensor | None) -> Tensor:
        """Run one forward pass. If no gradient is needed, it is divided into smaller batches.

        For example, SPSA queries 2048 images per call, which would need about 40 GB at 224 x 224.
        """
        with model_autocast(self._precision, self.classifier.device):
            return self._pass(inputs, owners)

    def _pass(self, inputs: Tensor, owners: Tensor | None) -> Tensor:
        if not (inputs.requires_grad and torch.is_grad_enabled()):
            whole = len(inputs) <= PASS_SIZE
            return self.classifier(inputs) if whole else self.classifier.predict_batched(inputs)
        asked, of_loss = inputs.view_as(inputs), []
        asked.register_hook(lambda gradient: self.seen.note_gradient(gradient, of_loss, owners))
        logits = self.classifier(asked)
        if logits.requires_grad:
            logits.register_hook(lambda gradient: of_loss.__setitem__(slice(None), [gradient]))
        elif self._needs_gradients:
            raise ModelNotDifferentiable
        return logits

    def _query_within_budget(self, inputs: Tensor, owners: Tensor, budget: QueryBudget) -> Tensor:
        granted, differentiable = budget.allow_forward(owners, self.forwards + self.backwards)
        if not (inputs.requires_grad and torch.is_grad_enabled()):
            differentiable = torch.zeros_like(granted)
        parts = ((granted & ~differentiable, inputs.detach()), (differentiable, inputs))
        answered = [(rows, self._answer(asked[rows], owners[rows], budget)) for rows, asked in parts if rows.any()]
        logits = budget.last_answers(owners, self.num_classes)
        if inputs.requires_grad:
            logits = logits + inputs.flatten(1)[:, :1] * 0
        for rows, answers in answered:
            logits = logits.index_put((rows.nonzero()[:, 0],), answers)
        if logits.requires_grad:  # a gradient is requested later, for which no query was left
            logits.register_hook(lambda _: budget.mark_exhausted(owners[~differentiable]))
        return logits

    def _answer(self, asked: Tensor, owners: Tensor, budget: QueryBudget) -> Tensor:
        """Compute the logits of the rows that the budget permits.

        They have a gradient if it is needed and permitted.
        """
        self._count("forwards", owners)
        answers = self._ask(asked, owners)
        budget.record_answers(asked.detach(), answers.detach(), owners)
        if answers.requires_grad:
            answers.register_hook(lambda gradient: self._grant_gradient(gradient, owners, budget))
        return answers

    def _grant_gradient(self, gradient: Tensor, owners: Tensor, budget: QueryBudget) -> Tensor:
        check_counted(gradient)
        granted = budget.allow_backward(owners, self.forwards + self.backwards)
        self._count("backwards", owners[granted])
        return gradient * granted.to(gradient.dtype)[:, None]

    def _count(self, kind: str, owners: Tensor | None) -> None:
        if owners is None:
            self._whole[kind] += self._draws
        else:  # a bincount waits for the GPU
            self._single[kind].index_add_(0, owners, torch.full_like(owners, self._draws))
        if self._asked is not None:
            self._asked(self._draws * (len(self._images) if owners is None else len(owners)))

    def _owners(self, inputs: Tensor) -> Tensor | None:
        if self._rows is None:
            return self._owners_among(inputs, self._images)
        owners = self._owners_among(inputs, self._images[self._rows])
        return self._rows if owners is None else self._rows[owners]

    def _owners_among(self, inputs: Tensor, clean: Tensor) -> Tensor | None:
        rows, images = len(inputs), len(clean)
        if images == 1:
            return None if rows == 1 else torch.zeros(rows, dtype=torch.long, device=clean.device)
        if self._order == "kept" and rows % images == 0:
            whole = torch.arange(images, device=clean.device)
            return None if rows == images else whole.repeat(rows // images)
        return nearest(inputs, clean)


class ModelNotDifferentiable(Exception):
    """Raised if the model's outputs have no gradient with respect to its input."""


class QueryObservations:
    """Observations on each image during one library call, such as whether its outputs and gradients were usable.

    Args:
        images: the clean images, shape (n, C, H, W).
    """

    def __init__(self, images: Tensor):
        self._images = images
        # By image: queried away from the clean image; non-finite logits or gradient for a valid query; invalid query.
        self.moved, self.silent, self.odd_gradient, self.odd_query = (
            torch.zeros(len(images), dtype=torch.bool, device=images.device) for _ in range(4)
        )
        self.gradients = torch.zeros(len(images), dtype=torch.long, device=images.device)
        self.scored = torch.zeros_like(self.moved)
        self._all_moved, self._all_scored, self._first_scores = False, False, None

    def note_inputs(self, inputs: Tensor, owners: Tensor | None) -> None:
        """Record the images that were queried at a point different from the clean image."""
        if self._all_moved:
            return
        if inputs.shape[1:] != self._images.shape[1:]:  # a resized copy
            moved = torch.ones(len(inputs), dtype=torch.bool, device=self.moved.device)
        else:
            clean = self._images if owners is None else self._images[owners]
            change = (inputs.detach().to(clean) - clean).flatten(1)
            moved = ~(change.abs().amax(1) <= UNCHANGED)
        self.moved |= self._any(moved, owners)
        self._all_moved = bool(self.moved.all())

    def note_logits(self, logits: Tensor, inputs: Tensor, owners: Tensor | None) -> None:
        """Record the images with a non-finite output, and whether the queried point was in [0, 1]."""
        if _is_finite(logits.detach()):
            return
        odd = ~torch.isfinite(logits.detach()).all(1)
        lowest, highest = inputs.detach().flatten(1).aminmax(dim=1)
        proper = (lowest >= -BOX_TOLERANCE) & (highest <= 1 + BOX_TOLERANCE)  # not with a NaN
        self.silent |= self._any(odd & proper, owners)
        self.odd_query |= self._any(odd & ~proper, owners)

    def note_gradient(self, gradient: Tensor, of_loss: Sequence[Tensor], owners: Tensor | None) -> None:
        """Count the gradients of each image that are finite and not zero. Record images with non-finite gradients.

        Args:
            gradient: gradient with respect to the images, shape (rows, C, H, W).
            of_loss: a list with the gradient of the library's loss with respect to the logits, (rows, K). Empty if this
                gradient is unknown.
            owners: index of the image of each row, shape (rows,). None if row i belongs to image i.
        """
        flat = gradient.flatten(1)
        sizes = flat.abs().sum(1)
        if _is_finite(sizes):
            self.gradients += self._count(sizes > 0, owners)
            return
        finite = flat.isfinite().all(1)  # a sum may overflow
        self.gradients += self._count(finite & flat.any(1), owners)
        asked = torch.ones_like(finite)
        for each in of_loss:
            asked &= each.detach().isfinite().all(1).to(asked.device)
        self.odd_gradient |= self._any(~finite & asked, owners)
        self.odd_query |= self._any(~asked, owners)

    def note_scores(self, scores: Tensor, owners: Tensor | None) -> None:
        """Record the images whose scores differ from the first scores of the image."""
        if self._all_scored:
            return
        owners = torch.arange(len(scores), device=scores.device) if owners is None else owners
        if self._first_scores is None:
            self._first_scores = scores.new_full((len(self._images), scores.shape[1]), torch.nan)
        first = self._first_scores
        new = first[owners].isnan().all(1)
        first[owners[new]] = scores[new]
        self.scored |= self._any((scores != first[owners]).any(1), owners)
        self._all_scored = bool(self.scored.all())

    def _any(self, flags: Tensor, owners: Tensor | None) -> Tensor:
        """Whether any row of each image has the flag, shape (n,), bool."""
        return flags.to(self._images.device) if owners is None else self._count(flags, owners) > 0

    def _count(self, flags: Tensor, owners: Tensor | None) -> Tensor:
        """Return the number of rows of each image that have the flag, shape (n,)."""
        flags = flags.to(self._images.device).long()
        return flags if owners is None else torch.zeros_like(self.gradients).index_add_(0, owners, flags)


def _is_finite(values: Tensor) -> bool:
    """Whether all numbers are finite, as far as their sum shows.

    The answer is False if the sum overflows, and always on a GPU. The caller then checks each number.
    """
    return values.device.type == "cpu" and math.isfinite(values.sum(dtype=torch.float64).numpy())


@torch.no_grad()
def nearest(inputs: Tensor, images: Tensor) -> Tensor:
    """Return the index of the nearest image in l2 for each row, shape (rows,).

    Args:
        inputs: rows of a query, shape (rows, C, H, W).
        images: images, shape (n, C, H, W).
    """
    flat = images.flatten(1)
    rows = inputs.detach().to(device=flat.device, dtype=flat.dtype).flatten(1)
    return (flat.square().sum(1) - 2 * rows @ flat.T).argmin(1)


def separable_groups(inputs: Tensor, threat_model: ThreatModel) -> list[list[int]]:
    """Divide images into groups in which every point in the ball of an image is nearest (l2) to this image.

    By Hoelder's inequality, |x_i - x_j|_2^2 > 2 epsilon |x_i - x_j|_q is sufficient, with q dual to the norm. Each
    image is a group of its own if there is no radius, and for l0, whose components may change by up to 1.

    Args:
        inputs: images in [0, 1], shape (N, C, H, W).
        threat_model: norm and radius.

    Returns:
        The groups, with the indices of their images in ascending order. An image is put into the first group that fits.
    """
    dual = {"linf": 1.0, "l2": 2.0, "l1": float("inf")}.get(threat_model.norm)
    if threat_model.epsilon is None or dual is None:
        return [[each] for each in range(len(inputs))]
    flat = inputs.flatten(1).double()
    squared = torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist").square()
    spread = squared - 2 * threat_model.epsilon * torch.cdist(flat, flat, p=dual)
    apart, groups = (spread > 0).cpu(), list[list[int]]()
    for each in range(len(inputs)):
        group = next((group for group in groups if apart[each, group].all()), None)
        groups.append([each]) if group is None else group.append(each)
    return groups
