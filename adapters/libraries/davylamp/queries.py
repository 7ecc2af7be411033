"""Model calls of davylamp's attacks, for points that are versions of images in the batch."""

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

Model: TypeAlias = Callable[[Tensor], Tensor]


def query_logits(model: Model, points: Tensor, rows: Tensor) -> Tensor:
    """Return the logits, shape (m, K), of `points` (m, C, H, W), where point i is a version of image rows[i].

    A model that counts queries per image (it has the attribute `query_rows`) also receives `rows`.
    """
    counted = getattr(model, "query_rows", None)
    return model(points) if counted is None else counted(points, rows)
