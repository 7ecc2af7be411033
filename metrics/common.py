"""Argument checks shared by all metrics, and arithmetic that is safe in half precision."""

import sys
from collections.abc import Callable, Iterable, Mapping
from math import nan, sqrt
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

Kind = Literal["float", "int64", "bool", "number"]
Normalisation = Literal["rms", "published", "formula"]
Sizes = dict[str, int]
FINITE = (-sys.float_info.max, sys.float_info.max)
ROWS = 2**16  # rows of logits per softmax
VALUES = {"cpu": 2**19, "other": 2**25}  # colour values of a group that fit a processor's cache or a GPU
_EXTREMES = WeakIdKeyDictionary()  # tensor -> its version and extremes, for the next metric of the same images


def check(
    tensors: Mapping[str, Tensor],
    dims: str,
    *,
    kind: Kind = "float",
    within: tuple[float, float] | None = FINITE,
    sizes: Sizes | None = None,
) -> Sizes:
    """Check shape, element type and values of tensors, and return the sizes of their dimensions.

    Args:
        tensors: tensors by the names that error messages use.
        dims: names of the dimensions, such as "N K". All tensors must have the same size in a dimension.
        kind: element type of the tensors. "number" allows float and integer.
        within: smallest and largest allowed element. NaN is not allowed. None allows every value, including NaN.
        sizes: sizes of dimensions from an earlier check, by name. A dimension of this name must have the same size.

    Returns:
        The sizes of all dimensions, including those in `sizes`, by name.

    Raises:
        TypeError: if a value is not a tensor.
        ValueError: if a shape, an element type or an element is not as expected.
    """
    sizes = dict(sizes or {})
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"expected {name} to be a torch.Tensor, got {type(value).__name__}")
        names = dims.split()
        known = dict(zip(names, value.shape, strict=False)) | sizes
        if [known.get(each) for each in names] != list(value.shape):
            shape = ", ".join(str(sizes.get(each, each)) for each in names)
            raise ValueError(f"expected {name} of shape ({shape}), got {tuple(value.shape)}")
        sizes = known
        _check_elements(name, value, kind, within)
    return sizes


def _check_elements(name: str, value: Tensor, kind: Kind, within: tuple[float, float] | None) -> None:
    integer = not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)
    fits = {
        "float": value.is_floating_point(),
        "int64": value.dtype == torch.int64,
        "bool": value.dtype == torch.bool,
        "number": value.is_floating_point() or integer,
    }
    if not fits[kind]:
        raise ValueError(f"expected {name} of type {kind}, got {value.dtype}")
    if kind == "bool" or within is None or not value.numel():
        return
    low, high = _extremes(value)
    if not (within[0] <= low and high <= within[1]):
        allowed = "finite numbers" if within == FINITE else f"values between {within[0]:g} and {within[1]:g}"
        raise ValueError(f"expected {name} to hold {allowed}, got {low:g} to {high:g}")


def _extremes(value: Tensor) -> tuple[float, float]:
    """Return the smallest and the largest element of a tensor. Both are NaN if any element is NaN.

    The result is cached until the tensor is deleted or changed. Tensors in NumPy memory and inference tensors are not
    cached, because torch does not track their changes. Changes through `.data` are not detected.
    """
    watched = not value.is_inference() and value.untyped_storage().resizable()
    known = _EXTREMES.get(value) if watched else None
    if known is not None and known[0] == value._version:
        return known[1]
    low, high = (extreme.item() for extreme in value.aminmax())
    if watched:
        _EXTREMES[value] = value._version, (low, high)
    return low, high


def check_logits(**named: Tensor) -> Sizes:
    """Raise ValueError unless all logits are finite and have the same shape (N, K)."""
    return check(named, "N K")


def check_classes(sizes: Sizes, **named: Tensor) -> Sizes:
    """Raise ValueError unless the class indices are int64, have shape (N,), and are below the number of classes K."""
    return check(named, "N", kind="int64", within=(0, sizes["K"] - 1), sizes=sizes)


def check_images(**named: Tensor) -> Sizes:
    """Raise ValueError unless all images have the same shape (N, C, H, W) and values in [0, 1]."""
    return check(named, "N C H W", within=(0, 1))


def check_success(sizes: Sizes, **named: Tensor | None) -> Sizes:
    """Raise ValueError unless the success flags are bool and have shape (N,). None is accepted."""
    return check({name: each for name, each in named.items() if each is not None}, "N", kind="bool", sizes=sizes)


def check_index(name: str, value: int, size: int) -> None:
    """Raise ValueError unless the value is in 0..size - 1."""
    if not 0 <= value < size:
        raise ValueError(f"expected {name} from 0 to {size - 1}, got {value}")


def check_pairs(inputs: Tensor, adv_inputs: Tensor, success: Tensor | None, *, least: int = 1) -> Sizes:
    """Check the arguments of an image metric, and return the sizes N, C, H and W.

    Args:
        inputs: clean images, shape (N, C, H, W).
        adv_inputs: adversarial images, shape (N, C, H, W).
        success: whether each image counts, shape (N,), bool. None means that all images count.
        least: smallest allowed height and width, pixels.
    """
    sizes = check_success(check_images(inputs=inputs, adv_inputs=adv_inputs), success=success)
    if min(sizes["H"], sizes["W"]) < least:
        raise ValueError(f"expected images of at least {least} x {least}, got {sizes['H']} x {sizes['W']}")
    return sizes


def check_choice(name: str, value: Any, allowed: Iterable[Any]) -> None:
    """Raise ValueError unless the value of an option is among the allowed values."""
    allowed = list(allowed)
    if value not in allowed:
        raise ValueError(f"expected {name} to be one of {', '.join(map(repr, allowed))}, got {value!r}")


def at_least_float32(values: Tensor) -> Tensor:
    """Convert half precision to float32, and leave float32 and float64 unchanged."""
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def nan_where_undefined(values: Tensor, where: Tensor | None) -> Tensor:
    """Return values with NaN where `where` is False. If `where` is None, the values are not changed."""
    return values if where is None else values.where(where, nan)


def as_float(true: Tensor, like: Tensor) -> Tensor:
    """Convert True to 1 and False to 0, in the precision of `like` but at least float32."""
    return true.to(torch.float64 if like.dtype == torch.float64 else torch.float32)


def confidence(logits: Tensor, classes: Tensor) -> Tensor:
    """Return the softmax probability of one class per row of logits, at least float32.

    Args:
        logits: shape (N, K). At most `ROWS` rows are converted at a time, to save memory.
        classes: class of each row, shape (N,).
    """
    parts = zip(logits.split(ROWS), classes.split(ROWS), strict=True)
    return torch.cat([at_least_float32(rows).softmax(1).gather(1, index[:, None])[:, 0] for rows, index in parts])


def grey_levels(images: Tensor) -> Tensor:
    """Convert images in [0, 1] to the nearest 8-bit grey levels, 0 to 255. Half a level is rounded up."""
    images = at_least_float32(images)
    return torch.add(images.new_tensor(0.5), images, alpha=255).floor_()


def l2_divisor(values: int, normalisation: Normalisation) -> float:
    """Return the number by which the L2 norm of an image change is divided.

    Args:
        values: number of colour values in an image.
        normalisation: "rms" for sqrt(values), "published" for sqrt(3 values), or "formula" for values.
    """
    divisors = {"rms": sqrt(values), "published": sqrt(3 * values), "formula": float(values)}
    check_choice("normalisation", normalisation, divisors)
    return divisors[normalisation]


def values_at_once(device: torch.device) -> int:
    """Return the number of colour values that a device processes fastest in one group of images."""
    return VALUES["cpu" if device.type == "cpu" else "other"]


def in_groups(function: Callable[..., Tensor], *images: Tensor, at_once: int | None = None) -> Tensor:
    """Apply a function to groups of images, without gradients. Small groups are faster than all images at once.

    Args:
        function: function that computes one value per image, shape (n,), of a group of n images. Called with one tensor
            of shape (n, C, H, W), float32 or float64, for each tensor in `images`.
        *images: tensors of shape (N, C, H, W).
        at_once: number of colour values per group. None selects a number that suits the device.

    Returns:
        The values, shape (N,).
    """
    if not len(images[0]):
        return at_least_float32(images[0]).new_empty(0)
    at_once = at_once or values_at_once(images[0].device)
    size = max(at_once // max(images[0].shape[1:].numel(), 1), 1)
    groups = zip(*(tensor.split(size) for tensor in images), strict=True)
    with torch.no_grad():
        return torch.cat([function(*map(at_least_float32, group)) for group in groups])
