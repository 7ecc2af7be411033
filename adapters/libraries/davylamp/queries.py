"""How these attacks ask a model: about any points, each a version of one image of the batch."""

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

Model: TypeAlias = Callable[[Tensor], Tensor]


def query_logits(model: Model, points: Tensor, rows: Tensor) -> Tensor:
    """Logits of `points` (m, C, H, W), of which number i is a version of image rows[i] of the batch, shape (m, K).

    A model that counts the queries of every image (it has `query_rows`) learns whose they are; any other needs not.
    """
    counted = getattr(model, "query_rows", None)
    return model(points) if counted is None else counted(points, rows)
