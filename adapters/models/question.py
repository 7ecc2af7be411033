"""What an attack asks a model about: a tensor, or a line that says so."""

from typing import Any

import numpy as np
from torch import Tensor
from torch._C import _functorch

from ...errors import Unsupported


def check_question(inputs: Any) -> None:
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
    # torch has no public way to tell such tensors
    if _functorch.is_functorch_wrapped_tensor(tensor) or _functorch.is_legacy_batchedtensor(tensor):
        raise Unsupported("asks inside torch.func or vmap, where passes cannot be counted; use torch.autograd.grad")
