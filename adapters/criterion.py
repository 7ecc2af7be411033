"""Decides whether an image counts as adversarial."""

import torch
from torch import Tensor


def is_fooled(logits: Tensor, labels: Tensor, targets: Tensor | None = None) -> Tensor:
    """Return whether each image counts as adversarial, shape (N,), bool.

    In a targeted attack, the prediction must be the target. In an untargeted attack, it must differ from the label. An
    image with a non-finite logit is never adversarial.
    """
    predicted = logits.argmax(1)
    hit = predicted != labels if targets is None else predicted == targets
    return hit & torch.isfinite(logits).all(1)
