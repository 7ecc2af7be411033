"""What an attack asks a model about: a tensor, or a line that says so."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import Unsupported

_functorch: Any = getattr(torch._C, "_functorch")  # noqa: B009 - the type checker does not know it; torch has no public way to tell such tensors


def check_model_input(inputs: Any) -> None:
    """Raise TypeError unless a model is asked about a tensor, and Unsupported inside a transform of `torch.func`."""
    if isinstance(inputs, np.ndarray):
        raise TypeError(
            "expected a tensor of images for the model, got a NumPy array: torch.from_numpy makes one of it"
        )
    if not isinstance(inputs, Tensor):
        raise TypeError(f"expected a tensor of images for the model, got {type(inputs).__name__}")
    check_counted(inputs)


def check_counted(tensor: Tensor) -> None:
    """Raise Unsupported for a tensor of a transform (grad, vmap, jvp): it hides how many images it stands for."""
    if _functorch.is_functorch_wrapped_tensor(tensor) or _functorch.is_legacy_batchedtensor(tensor):
        raise Unsupported("asks inside torch.func or vmap, where passes cannot be counted; use torch.autograd.grad")
