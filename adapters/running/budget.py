"""Query budgets of images, the best example so far, and the outputs that an attack gets when its budget is used up."""

import torch
from torch import Tensor

from ..criterion import is_fooled
from ..threat_model import ThreatModel
from .judge import perturbation_norm, project, within_threat_model

IDLE_CALLS = 100  # consecutive queries for exhausted images only, after which the call is ended


class QueryBudgetExhausted(BaseException):
    """Raised if no image of the batch has queries left.

    It ends the attack, and the best examples so far are the result.
    """


class QueryBudget:
    """Query budget of each image in one library call, and the best example among the queried points of each image.

    With a radius, the best example is the first queried point in the ball that fools the model. If there is none, it is
    the point with the smallest margin. A point outside the ball, such as the look-ahead of momentum, is first projected
    into the ball. Without a radius, the best example is the nearest queried point that fools the model.

    A forward pass costs `cost` queries, and so does a backward pass. If fewer than `cost` queries remain, they are not
    used.
    """

    def __init__(
        self,
        max_queries: Tensor,
        inputs: Tensor,
        labels: Tensor,
        targets: Tensor | None,
        threat_model: ThreatModel,
        *,
        cost: int = 1,
    ):
        self.max_queries, self._cost = max_queries, cost
        self.best = inputs.clone()
        self.denied = torch.zeros(len(inputs), dtype=torch.bool, device=inputs.device)
        self._inputs, self._labels, self._targets = inputs, labels, targets
        self._threat_model = threat_model
        self._score = torch.full((len(inputs),), float("inf"), device=inputs.device)
        self._answers: Tensor | None = None
        self._idle = 0

    def allow_forward(self, owners: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """Decide which rows of a query may be computed.

        The rows of an image are permitted in their order, until the image has no queries left. Queries that then remain
        are used for gradients of the permitted rows, in the same order.

        Args:
            owners: index of the image of each row, shape (rows,).
            used: queries that each image has used, shape (n,).

        Returns:
            Whether each row may be computed, and whether it may have a gradient, shape (rows,) bool each.

        Raises:
            QueryBudgetExhausted: if no image has queries left. Also if the last `IDLE_CALLS` calls queried only images
                without queries left, because all other images are finished.
        """
        if bool((self._left(used) <= 0).all()):
            self.denied[owners] = True
            raise QueryBudgetExhausted
        left, earlier = self._left(used)[owners], self._earlier(owners)
        granted = earlier < left
        asked = torch.zeros_like(used).index_add_(0, owners, granted.long())[owners]
        self.denied[owners[~granted]] = True
        self._idle = 0 if granted.any() else self._idle + 1
        if self._idle > IDLE_CALLS:
            raise QueryBudgetExhausted
        return granted, granted & (earlier < left - asked)

    def allow_backward(self, owners: Tensor, used: Tensor) -> Tensor:
        """Decide which rows of a backward pass get a gradient. An image gets at most as many as its remaining queries.

        All other rows get a gradient of zeros, which is not counted.

        Args:
            owners: index of the image of each row, shape (rows,).
            used: queries that each image has used, shape (n,).

        Returns:
            Whether each row gets a gradient, shape (rows,), bool.

        Raises:
            QueryBudgetExhausted: if no image has queries left. There is no backward pass then.
        """
        granted = self._earlier(owners) < self._left(used)[owners]
        self.denied[owners[~granted]] = True
        if bool((self._left(used) <= 0).all()):
            raise QueryBudgetExhausted
        return granted

    def mark_exhausted(self, owners: Tensor) -> None:
        """Record that these images were refused a query."""
        self.denied[owners] = True

    def _left(self, used: Tensor) -> Tensor:
        """Return the number of passes that each image may still use, shape (n,)."""
        return (self.max_queries - used) // self._cost

    def _earlier(self, owners: Tensor) -> Tensor:
        """Return for each row the number of rows of the same image before it, shape (rows,)."""
        return torch.nn.functional.one_hot(owners, len(self._inputs)).cumsum(0).gather(1, owners[:, None])[:, 0] - 1

    def last_answers(self, owners: Tensor, classes: int) -> Tensor:
        """Return the last logits of the image of each row, shape (rows, classes).

        Zeros before the first query of the image.
        """
        if self._answers is None:
            return torch.zeros(len(owners), classes, device=owners.device)
        return self._answers[owners]

    @torch.no_grad()
    def record_answers(self, asked: Tensor, logits: Tensor, owners: Tensor) -> None:
        """Record the results of a query.

        Args:
            asked: the queried points, shape (rows, C, H, W).
            logits: their logits, shape (rows, K).
            owners: index of the image of each row, shape (rows,).
        """
        if self._answers is None:
            self._answers = logits.new_zeros(len(self._inputs), logits.shape[1])
        self._answers[owners] = logits
        if asked.shape[1:] != self._inputs.shape[1:]:
            return  # a resized copy is no example
        asked = asked.to(self._inputs)
        clean, targets = self._inputs[owners], None if self._targets is None else self._targets[owners]
        margin = _margin(logits, self._labels[owners], targets)
        rules = self._threat_model.for_images(owners)
        valid = within_threat_model(clean, asked, rules)
        hit = is_fooled(logits, self._labels[owners], targets)
        if self._threat_model.epsilon is None:
            score = perturbation_norm(asked - clean, self._threat_model.norm).where(valid & hit, torch.inf)
        else:
            finite = torch.isfinite(asked).flatten(1).all(1) & ~margin.isnan()
            score = margin.where(~(valid & hit), -torch.inf).where(finite, torch.inf)
            if not valid.all():
                asked = asked.clone()
                asked[~valid] = project(clean[~valid], asked[~valid], rules.for_images(~valid)).clamp(0, 1)
        self._keep_best(asked, score.to(self._score), owners)

    def _keep_best(self, asked: Tensor, score: Tensor, owners: Tensor) -> None:
        lowest = self._score.scatter_reduce(0, owners, score, "amin")
        better = lowest < self._score
        rows = torch.arange(len(owners), device=owners.device)
        rows = rows.where((score == lowest[owners]) & better[owners], len(owners))
        first = torch.full_like(self._score, len(owners), dtype=torch.long).scatter_reduce(0, owners, rows, "amin")
        self.best[better] = asked[first[better]]
        self._score = lowest


def _margin(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
    wanted = labels if targets is None else targets
    wanted_logit = logits.gather(1, wanted[:, None])[:, 0]
    rest = logits.scatter(1, wanted[:, None], -torch.inf).amax(1)
    return wanted_logit - rest if targets is None else rest - wanted_logit
