"""What an attack asks a model about: a tensor, or a line that says so."""

from typing import Any

import numpy as np
from torch import Tensor


def check_question(inputs: Any) -> None:
    """Raise TypeError unless a model is asked about a tensor."""
    if isinstance(inputs, np.ndarray):
        raise TypeError(
            "expected a tensor of images for the model, got a NumPy array: torch.from_numpy makes one of it"
        )
    if not isinstance(inputs, Tensor):
        raise TypeError(f"expected a tensor of images for the model, got {type(inputs).__name__}")
