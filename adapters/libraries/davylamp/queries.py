"""Model calls of these attacks: on any points, each a version of one image of the batch."""

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

Model: TypeAlias = Callable[[Tensor], Tensor]


def query_logits(model: Model, points: Tensor, rows: Tensor) -> Tensor:
    """Return the logits of `points` (m, C, H, W), where point i is a version of image rows[i], shape (m, K).

    A model that counts queries per image (has `query_rows`) is told the images; any other model is simply called.
    """
    counted = getattr(model, "query_rows", None)
    return model(points) if counted is None else counted(points, rows)
