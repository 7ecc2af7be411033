"""Calls of the model by davylamp's attacks, which query several versions of each image of a batch."""

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

Model: TypeAlias = Callable[[Tensor], Tensor]


def query_logits(model: Model, points: Tensor, rows: Tensor) -> Tensor:
    """Return the logits, shape (m, K), of `points` (m, C, H, W), where point i is a version of image rows[i].

    If the model counts queries per image, `rows` is passed to the model. Such a model has the attribute `query_rows`.
    """
    counted = getattr(model, "query_rows", None)
    return model(points) if counted is None else counted(points, rows)
