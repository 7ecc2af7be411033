"""What a function is given and gives, as JSON and tensors: numbers, texts, tensors, lists and mappings of them."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ...user_code import one_line


def to_plain(value: Any, tensors: list[Tensor]) -> Any:
    """A value as JSON types; its tensors are appended to `tensors` and stand there by their place.

    Raises:
        TypeError: if there is something else in it.
    """
    if isinstance(value, Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [to_plain(each, tensors) for each in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {"map": {name: to_plain(each, tensors) for name, each in value.items()}}
    raise TypeError(f"expected numbers, texts, tensors, or lists and mappings of them, got {type(value).__name__}")


def from_plain(value: Any, tensors: list[Tensor]) -> Any:
    """The value that the other side of the wall described, its texts cut and cleaned; tuples come as lists.

    Raises:
        ValueError: if it describes none.
    """
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, list):
        return [from_plain(each, tensors) for each in value]
    if isinstance(value, dict) and isinstance(value.get("map"), dict):
        return {one_line(name): from_plain(each, tensors) for name, each in value["map"].items()}
    place = value.get("tensor") if isinstance(value, dict) else None
    if type(place) is not int or not 0 <= place < len(tensors):
        raise ValueError("expected a value")
    return tensors[place]
