"""Model calls of davylamp's attacks, on points that are versions of images in the batch."""

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

Model: TypeAlias = Callable[[Tensor], Tensor]


def query_logits(model: Model, points: Tensor, rows: Tensor) -> Tensor:
    """Return the logits of `points` (m, C, H, W), where point i is a version of image rows[i], shape (m, K).

    A model that counts queries per image (has `query_rows`) also receives `rows`; any other model is called normally.
    """
    counted = getattr(model, "query_rows", None)
    return model(points) if counted is None else counted(points, rows)
