"""Converts arguments of the Python interface to their types, or raises a one-line error."""

import math
import os
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, cast

from ..errors import InvalidInput, WrongType
from .parameters import parse_number

_LONGEST = 60  # characters of a value in a message


def type_error(wanted: str, value: Any) -> WrongType:
    """Build the `WrongType` error for a value of a wrong type. The message contains the value if it is short."""
    plain = value is None or isinstance(value, (str, bytes, Real))
    text = repr(value) if plain and len(repr(value)) <= _LONGEST else type(value).__name__
    return WrongType(f"expected {wanted}, got {text}")


def read_list(value: Any, wanted: str, kind: type | tuple[type, ...] = object) -> list[Any]:
    """Convert a value to a list. A string becomes a list with one item.

    Args:
        value: the value to convert.
        wanted: description of the expected value for the error message, such as "libraries as names".
        kind: required type of each item.

    Raises:
        WrongType: if the value is not a list, or an item has a different type.
    """
    if isinstance(value, (bytes, Mapping)) or not isinstance(value, Iterable):
        raise type_error(wanted, value)
    items = [value] if isinstance(value, str) else list(value)
    for item in items:
        if not isinstance(item, kind):
            raise type_error(wanted, item)
    return items


def read_int(value: Any, wanted: str, low: int, high: int) -> int:
    """Convert a value to an int from `low` to `high`. `wanted` describes the expected value in the error message.

    Raises:
        InvalidInput: if the integer is outside this range.
        WrongType: if the value is not an integer.
    """
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise type_error(wanted, value)
    if not low <= int(value) <= high:
        raise InvalidInput(f"expected {wanted}, got {value}")
    return int(value)


def read_seed(value: Any) -> int:
    """Convert a value to a random seed from 0 to 2**32 - 1. Raises InvalidInput for other integers."""
    return read_int(value, "a seed from 0 to 2**32 - 1", 0, 2**32 - 1)


def read_text(value: Any, wanted: str) -> str:
    """Check that a value is a string, and return it. None becomes "". Raises WrongType for other types."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise type_error(wanted, value)
    return value


def read_target(value: Any) -> str:
    """Convert a target rule or a class number to a string. None becomes "", which stands for an untargeted attack."""
    is_class = isinstance(value, Integral) and not isinstance(value, bool)
    return str(int(value)) if is_class else read_text(value, "a target as text or a class number")


def read_mapping(value: Any, wanted: str) -> dict[str, Any]:
    """Convert a mapping to a dict. None becomes an empty dict. Raises WrongType for other types."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise type_error(wanted, value)
    return dict(value)


def read_path(value: Any, wanted: str) -> Path:
    """Convert a string or path to a `Path`. Raises WrongType for other types."""
    if not isinstance(value, (str, os.PathLike)):
        raise type_error(wanted, value)
    return Path(value)


def read_channels(name: str, values: Any) -> list[float]:
    """Convert a list, tensor or array to one finite number per channel.

    A tensor or an array may have the shape (C,), (C, 1, 1) or (1, C, 1, 1).

    Raises:
        InvalidInput: if a number is not finite or the shape is wrong.
        WrongType: for other types.
    """
    wanted = f"{name} as a list of one number for each channel"
    shape = getattr(values, "shape", ())
    if len(shape) > 1 and sum(size != 1 for size in shape) <= 1:
        values = values.reshape(-1)
    try:
        if isinstance(values, (str, bytes, Mapping)):
            raise TypeError
        numbers = [float(value) for value in values]
    except (TypeError, ValueError):
        raise type_error(wanted, values) from None
    if not numbers or not all(map(math.isfinite, numbers)):
        raise InvalidInput(f"expected {wanted}, finite, got {numbers}")
    return numbers


def read_radius(value: Any) -> float | None:
    """Convert the argument `epsilon` to a radius. A string such as "8/255" becomes a number. None stays None.

    Raises:
        InvalidInput: if a string is not a number or a fraction.
        WrongType: for other types.
    """
    if isinstance(value, str):
        return parse_number(value, "epsilon")
    if value is None or (isinstance(value, Real) and not isinstance(value, bool)):
        return cast("float | None", value)  # a whole number stays one
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a tensor or an array of one number
        return value.item()
    error = type_error("epsilon as a number or a fraction such as '8/255'", value)
    if isinstance(value, (list, tuple)):
        error.args = (f"{error}; davylamp.evaluate accepts several",)
    raise error


def read_radii(value: Any) -> list[Any]:
    """Convert one radius or several radii to a list.

    Numbers are checked, see `read_radius`. Strings such as "8/255" stay strings.

    Raises:
        InvalidInput: if the list is empty.
    """
    if len(getattr(value, "shape", ())) == 1 and hasattr(value, "tolist"):  # an array or a tensor of several
        value = value.tolist()
    several = list(value) if isinstance(value, (list, tuple)) else [value]
    if not several:
        raise InvalidInput("expected epsilon as one radius or several, got an empty list")
    return [radius if isinstance(radius, str) else read_radius(radius) for radius in several]
