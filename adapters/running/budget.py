"""Query budgets per image, the best example so far, and the outputs returned after the budget is used up."""

import torch
from torch import Tensor

from ..criterion import is_fooled
from ..threat_model import ThreatModel
from .judge import perturbation_norm, project, within_threat_model

IDLE_CALLS = 100  # consecutive queries for exhausted images only, after which the call is ended


class QueryBudgetExhausted(BaseException):
    """Raised if no image of the batch has queries left. The best examples so far then become the result."""


class QueryBudget:
    """Query budget of each image in one library call, and the best example among the image's queries.

    For a threat model with epsilon, the best example is the first queried point inside the ball that fools the model,
    otherwise the point with the smallest margin. A point that was queried outside the ball (such as momentum's
    look-ahead) is projected into the ball, because an attacker without queries left could also submit this projection.
    Without epsilon, the best example is the nearest queried point that fools the model.

    A forward pass costs `cost` queries, and so does its gradient. Remaining queries are not used if they are fewer than
    `cost`.
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
        """Return whether each row may be queried, and whether it may have a gradient, shape (rows,), bool each.

        The rows of an image are granted in their order, until the image has no queries left. Any remaining queries are
        used for gradients of the granted rows, in the same order.

        Raises:
            QueryBudgetExhausted: if no image has any query left, or if the last `IDLE_CALLS` calls queried only images
                without queries left, because the other images are finished.
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
        """Return whether each row may have a gradient, (rows,), bool: for each image, at most its remaining queries.

        For the other rows, a gradient of zeros is passed through the model. It contains no information and is not
        counted.

        Raises:
            QueryBudgetExhausted: if no image has any query left. The backward pass is then not made.
        """
        granted = self._earlier(owners) < self._left(used)[owners]
        self.denied[owners[~granted]] = True
        if bool((self._left(used) <= 0).all()):
            raise QueryBudgetExhausted
        return granted

    def mark_exhausted(self, owners: Tensor) -> None:
        """Record that queries were denied to these images."""
        self.denied[owners] = True

    def _left(self, used: Tensor) -> Tensor:
        """Return the number of outputs that each image can still get, shape (n,)."""
        return (self.max_queries - used) // self._cost

    def _earlier(self, owners: Tensor) -> Tensor:
        """Return, for each row, the number of earlier rows of the same image, shape (rows,)."""
        return torch.nn.functional.one_hot(owners, len(self._inputs)).cumsum(0).gather(1, owners[:, None])[:, 0] - 1

    def last_answers(self, owners: Tensor, classes: int) -> Tensor:
        """Return the last logits of each row's image, shape (rows, classes). They are zero before its first query."""
        if self._answers is None:
            return torch.zeros(len(owners), classes, device=owners.device)
        return self._answers[owners]

    @torch.no_grad()
    def record_answers(self, asked: Tensor, logits: Tensor, owners: Tensor) -> None:
        """Record the queried images `asked` (rows, C, H, W), their `logits` (rows, K) and their `owners` (rows,)."""
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
