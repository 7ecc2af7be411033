"""Validates images and labels, and the tensors with which a model is called."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import InvalidInput, Unsupported, WrongType
from ..coercion import type_error

_functorch: Any = getattr(torch._C, "_functorch")  # noqa: B009 - the type checker does not know it; torch has no public way to detect such tensors
SEVERAL_LABELS = (
    "several labels per image need a criterion for what counts as fooled: MODEL+multi-label:label=J, "
    "MODEL+multi-label:any=FILE.npz or davylamp.from_multi_label"
)


def advise_on_labels(labels: Any) -> str:
    """Return advice on labels of shape (N, L), where class numbers of shape (N,) are expected."""
    values = np.asarray(labels)
    if values.shape[1] == 1:
        return "remove the second axis: labels[:, 0]"
    is_one_hot = np.isin(values, (0, 1)).all() and (values.sum(1) == 1).all()
    return "for one class per image, use labels.argmax(1)" if is_one_hot else SEVERAL_LABELS


def check_images(inputs: Any) -> None:
    """Raise InvalidInput unless `inputs` are images in [0, 1] of shape (N, C, H, W)."""
    if not isinstance(inputs, Tensor):
        raise WrongType(f"expected images as a torch.Tensor, got {type(inputs).__name__}")
    if inputs.ndim == 4 and not len(inputs):
        raise InvalidInput("expected at least one image of shape (N, C, H, W), got 0")
    if inputs.ndim != 4 or 0 in inputs.shape:
        missing = "batch: inputs[None]" if inputs.shape[:1] in ((1,), (3,)) else "channel: inputs[:, None]"
        advice = f"; add the {missing}" if inputs.ndim == 3 else ""
        raise InvalidInput(f"expected images of shape (N, C, H, W), got {tuple(inputs.shape)}{advice}")
    if not inputs.is_floating_point():
        advice = "; divide 8-bit images by 255" if inputs.dtype == torch.uint8 else ""
        raise InvalidInput(f"expected floating point images in [0, 1], got {inputs.dtype}{advice}")
    if inputs.layout != torch.strided or inputs.is_meta:
        kind = "a tensor on the device meta, which has no values" if inputs.is_meta else "a sparse tensor"
        raise InvalidInput(f"expected images as a dense tensor, got {kind}")
    inputs = inputs.detach()
    # Both are NaN if any pixel is; torch.isfinite would make copies of what may be gigabytes.
    low, high = float(inputs.min()), float(inputs.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise InvalidInput("expected images in [0, 1], got NaN or infinity")
    if low < 0 or high > 1:
        largest = "divide 8-bit images by 255" if high > 128 else "divide them by their largest possible value"
        advice = largest if low >= 0 else "undo the normalisation (the model applies mean, std)"
        advice = "clamp them: images.clamp(0, 1)" if low >= -1e-3 and high <= 1.001 else advice
        raise InvalidInput(f"expected images in [0, 1], got values from {low:.7g} to {high:.7g}; {advice}")


def check_labels(labels: Any, count: int, num_classes: int) -> None:
    """Raise InvalidInput unless `labels` are `count` class indices below `num_classes`."""
    check_form_of_labels(labels, count)
    if count and (int(labels.min()) < 0 or int(labels.max()) >= num_classes):
        raise InvalidInput(
            f"expected labels from 0 to {num_classes - 1}, got values from {int(labels.min())} to {int(labels.max())}"
        )


def check_form_of_labels(labels: Any, count: int) -> None:
    """Raise InvalidInput unless `labels` are `count` integers. Use this check if the number of classes is unknown."""
    if not isinstance(labels, Tensor):
        raise WrongType(f"expected labels as a torch.Tensor, got {type(labels).__name__}")
    if labels.shape != (count,):
        advice = f"; {advise_on_labels(labels)}" if labels.ndim == 2 and len(labels) == count else ""
        raise InvalidInput(f"expected labels of shape ({count},), got {tuple(labels.shape)}{advice}")
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise InvalidInput(f"expected integer labels, got {labels.dtype}")


def read_labels(labels: Any, count: int) -> Tensor:
    """Convert the labels of `count` images (a tensor, an array or a list) to a tensor.

    Raises:
        InvalidInput: unless there is a class index for each image.
        WrongType: if `labels` is not an array of numbers.
    """
    if not isinstance(labels, Tensor):
        try:
            array = np.asarray(labels)
        except (TypeError, ValueError):  # lists of different lengths
            array = np.asarray(None)
        if array.dtype.kind not in "biuf":
            got = str(array.flat[0]) if array.dtype.kind == "U" and array.size else labels
            raise type_error(f"labels as class indices, a tensor or an array of shape ({count},)", got)
        labels = torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("=")))  # converts other byte orders
    check_form_of_labels(labels, count)
    return labels


def check_model_input(inputs: Any) -> None:
    """Check the tensor with which an attack calls the model.

    Raises:
        TypeError: if the input is not a tensor.
        Unsupported: if the call is inside a transform of `torch.func`, which hides the number of images.
    """
    if isinstance(inputs, np.ndarray):
        raise TypeError(
            "expected a tensor of images for the model, got a NumPy array; convert it with torch.from_numpy"
        )
    if not isinstance(inputs, Tensor):
        raise TypeError(f"expected a tensor of images for the model, got {type(inputs).__name__}")
    check_counted(inputs)


def check_counted(tensor: Tensor) -> None:
    """Raise Unsupported if a tensor is inside a transform of `torch.func`, because its images cannot be counted."""
    if _functorch.is_functorch_wrapped_tensor(tensor) or _functorch.is_legacy_batchedtensor(tensor):
        raise Unsupported(
            "the attack calls the model in torch.func or vmap, where queries cannot be counted; use "
            "torch.autograd.grad instead"
        )
