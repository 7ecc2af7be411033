"""The criterion by which an image counts as adversarial."""

import torch
from torch import Tensor


def is_fooled(logits: Tensor, labels: Tensor, targets: Tensor | None = None) -> Tensor:
    """Whether each image is a success, shape (N,) bool: the prediction is the target, or not the label if untargeted.

    An image with a non-finite logit is never a success.
    """
    predicted = logits.argmax(1)
    hit = predicted != labels if targets is None else predicted == targets
    return hit & torch.isfinite(logits).all(1)
