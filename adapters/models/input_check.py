"""Checks the tensors with which a model is called."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import Unsupported

_functorch: Any = getattr(torch._C, "_functorch")  # noqa: B009 - the type checker does not know it; torch has no public way to detect such tensors


def check_model_input(inputs: Any) -> None:
    """Raise TypeError unless the model input is a tensor, or Unsupported inside a transform of `torch.func`."""
    if isinstance(inputs, np.ndarray):
        raise TypeError(
            "expected a tensor of images for the model, got a NumPy array; convert it with torch.from_numpy"
        )
    if not isinstance(inputs, Tensor):
        raise TypeError(f"expected a tensor of images for the model, got {type(inputs).__name__}")
    check_counted(inputs)


def check_counted(tensor: Tensor) -> None:
    """Raise Unsupported for a tensor inside a transform of `torch.func`, which hides the number of images."""
    if _functorch.is_functorch_wrapped_tensor(tensor) or _functorch.is_legacy_batchedtensor(tensor):
        raise Unsupported("calls the model in torch.func or vmap, which hide queries; use torch.autograd.grad instead")
