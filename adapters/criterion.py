"""When an image counts as adversarial."""

import torch
from torch import Tensor


def is_fooled(logits: Tensor, labels: Tensor, targets: Tensor | None = None) -> Tensor:
    """Whether each row counts as a success, shape (N,) bool: not the label, or the target if there is one.

    A row with a NaN is never a success.
    """
    predicted = logits.argmax(1)
    hit = predicted != labels if targets is None else predicted == targets
    return hit & torch.isfinite(logits).all(1)
