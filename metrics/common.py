"""Argument checks shared by all metrics, and arithmetic that does not suffer from half precision."""

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
    """Check tensors that share one shape, and return the sizes of its dimensions.

    Args:
        tensors: tensors by the names that error messages use.
        dims: names of the dimensions, such as "N K". A name in `sizes` must have that size.
        kind: type of the elements; "number" is float or integer.
        within: least and largest allowed element, which excludes NaN; None to allow everything, including NaN.
        sizes: known sizes by name of the dimension.

    Returns:
        The sizes of all dimensions known so far.

    Raises:
        TypeError: if one is not a tensor.
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
    """Raise ValueError unless the elements are of the kind and within the range.

    The extremes are NaN if an element is.
    """
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
    """Return the least and largest element, NaN if one is; cached while the tensor lives and is unchanged.

    Memory that is shared with NumPy (which torch cannot resize) and inference tensors (which have no version) are
    checked each time. Writes through `.data` are not detected until the tensor is changed in a different way, because
    they do not change its version.
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
    """Check logits of one shape (N, K), finite numbers."""
    return check(named, "N K")


def check_classes(sizes: Sizes, **named: Tensor) -> Sizes:
    """Check class indices of shape (N,), int64, each below the number of classes K."""
    return check(named, "N", kind="int64", within=(0, sizes["K"] - 1), sizes=sizes)


def check_images(**named: Tensor) -> Sizes:
    """Check images of one shape (N, C, H, W), each value in [0, 1]."""
    return check(named, "N C H W", within=(0, 1))


def check_success(sizes: Sizes, **named: Tensor | None) -> Sizes:
    """Check flags of shape (N,), bool; None for all images is not checked."""
    return check({name: each for name, each in named.items() if each is not None}, "N", kind="bool", sizes=sizes)


def check_index(name: str, value: int, size: int) -> None:
    """Raise ValueError unless the value is an index below the size."""
    if not 0 <= value < size:
        raise ValueError(f"expected {name} from 0 to {size - 1}, got {value}")


def check_pairs(inputs: Tensor, adv_inputs: Tensor, success: Tensor | None, *, least: int = 1) -> Sizes:
    """Check images before and after an attack, each side at least `least`, and the flags of those that count."""
    sizes = check_success(check_images(inputs=inputs, adv_inputs=adv_inputs), success=success)
    if min(sizes["H"], sizes["W"]) < least:
        raise ValueError(f"expected images of at least {least} x {least}, got {sizes['H']} x {sizes['W']}")
    return sizes


def check_choice(name: str, value: Any, allowed: Iterable[Any]) -> None:
    """Raise ValueError unless the value of an option is allowed."""
    allowed = list(allowed)
    if value not in allowed:
        raise ValueError(f"expected {name} to be one of {', '.join(map(repr, allowed))}, got {value!r}")


def at_least_float32(values: Tensor) -> Tensor:
    """Convert half precision to float32. Float32 and float64 stay unchanged."""
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def nan_where_undefined(values: Tensor, where: Tensor | None) -> Tensor:
    """Return the values as floats, NaN where the metric is undefined; None: it is defined everywhere."""
    return values if where is None else values.where(where, nan)


def as_float(true: Tensor, like: Tensor) -> Tensor:
    """Return 1 for true and 0 for false, in a precision that suits the tensor `like`."""
    return true.to(torch.float64 if like.dtype == torch.float64 else torch.float32)


def confidence(logits: Tensor, classes: Tensor) -> Tensor:
    """Return the softmax probability of one class per row, with at most `ROWS` rows in memory."""
    parts = zip(logits.split(ROWS), classes.split(ROWS), strict=True)
    return torch.cat([at_least_float32(rows).softmax(1).gather(1, index[:, None])[:, 0] for rows, index in parts])


def grey_levels(images: Tensor) -> Tensor:
    """Return the nearest 8-bit grey level, 0 to 255, for values in [0, 1]. Half a level is rounded up."""
    images = at_least_float32(images)
    return torch.add(images.new_tensor(0.5), images, alpha=255).floor_()


def l2_divisor(values: int, normalisation: Normalisation) -> float:
    """Return the divisor of the L2 norm of `values` values."""
    divisors = {"rms": sqrt(values), "published": sqrt(3 * values), "formula": float(values)}
    check_choice("normalisation", normalisation, divisors)
    return divisors[normalisation]


def values_at_once(device: torch.device) -> int:
    """Return a suitable number of colour values per group of images for the device."""
    return VALUES["cpu" if device.type == "cpu" else "other"]


def in_groups(function: Callable[..., Tensor], *images: Tensor, at_once: int | None = None) -> Tensor:
    """Apply a function with one value per image to groups of images, without gradients. Small groups are faster.

    Args:
        function: takes as many tensors (n, C, H, W), float32 or float64, and returns shape (n,).
        *images: each of shape (N, C, H, W).
        at_once: colour values in a group; None for a number that suits the device.

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
