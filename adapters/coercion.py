"""Arguments as a user's script gives them, read where one meaning is clear: one line where it is not."""

import math
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, cast

from ..errors import InvalidInput, WrongType
from .parameters import parse_number

_LONGEST = 60  # characters of a value in a message


def type_error(wanted: str, value: Any) -> WrongType:
    """The error of a value that is nothing of the kind, which a message shows if it is short and plain."""
    plain = value is None or isinstance(value, (str, bytes, Real))
    text = repr(value) if plain and len(repr(value)) <= _LONGEST else type(value).__name__
    return WrongType(f"expected {wanted}, got {text}")


def read_list(value: Any, wanted: str, kind: type | tuple[type, ...] = object) -> list[Any]:
    """Several things, or the one text that was given alone.

    Args:
        value: what was given.
        wanted: what a message says of it: "libraries as names".
        kind: what each of them has to be.

    Raises:
        WrongType: if it is no list, or something else is in it.
    """
    if isinstance(value, (bytes, Mapping)) or not isinstance(value, Iterable):
        raise type_error(wanted, value)
    items = [value] if isinstance(value, str) else list(value)
    for item in items:
        if not isinstance(item, kind):
            raise type_error(wanted, item)
    return items


def read_int(value: Any, wanted: str, low: int, high: int) -> int:
    """A whole number from `low` to `high`; InvalidInput otherwise, which is a WrongType where it is none at all."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise type_error(wanted, value)
    if not low <= int(value) <= high:
        raise InvalidInput(f"expected {wanted}, got {value}")
    return int(value)


def read_seed(value: Any) -> int:
    """A random seed; InvalidInput if it is none."""
    return read_int(value, "a seed from 0 to 2**32 - 1", 0, 2**32 - 1)


def read_text(value: Any, wanted: str) -> str:
    """A text, of None the empty one; WrongType otherwise."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise type_error(wanted, value)
    return value


def read_target(value: Any) -> str:
    """The rule of the targets as a text, of a class its number; None or "": untargeted."""
    is_class = isinstance(value, Integral) and not isinstance(value, bool)
    return str(int(value)) if is_class else read_text(value, "a target as text or a class number")


def read_mapping(value: Any, wanted: str) -> dict[str, Any]:
    """Values by name, of None none; WrongType otherwise."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise type_error(wanted, value)
    return dict(value)


def read_path(value: Any, wanted: str) -> Path:
    """A path; WrongType for what is no text and no path."""
    if not isinstance(value, (str, Path)):
        raise type_error(wanted, value)
    return Path(value)


def read_channels(name: str, values: Any) -> list[float]:
    """A finite number for each channel; InvalidInput otherwise, which is a WrongType where there are no numbers.

    A tensor or an array may have the shape by which it is subtracted from images, (1, C, 1, 1) or (C, 1, 1).
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
    """A radius as a number, which stays as it is: of the text "8/255" what it is; None: no radius.

    Raises:
        InvalidInput: for a text that is no number.
        WrongType: for anything else.
    """
    if isinstance(value, str):
        return parse_number(value, "epsilon")
    if value is None or (isinstance(value, Real) and not isinstance(value, bool)):
        return cast("float | None", value)  # a whole number stays one
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a tensor or an array of one number
        return value.item()
    error = type_error("epsilon as a number or a fraction such as '8/255'", value)
    if isinstance(value, (list, tuple)):
        error.args = (f"{error}; davylamp.evaluate takes several",)
    raise error


def read_radii(value: Any) -> list[Any]:
    """One radius or several: numbers as `read_radius` has each, texts as they are; InvalidInput for an empty list."""
    if len(getattr(value, "shape", ())) == 1 and hasattr(value, "tolist"):  # an array or a tensor of several
        value = value.tolist()
    several = list(value) if isinstance(value, (list, tuple)) else [value]
    if not several:
        raise InvalidInput("expected epsilon as one radius or several, got an empty list")
    return [radius if isinstance(radius, str) else read_radius(radius) for radius in several]
