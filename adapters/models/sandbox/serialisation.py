"""Converts plain values and the states of random generators to JSON types, for messages between processes."""

import base64
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...user_code_guard import one_line

_WORDS = 624  # size of a Mersenne twister's state


def to_plain(value: Any, tensors: list[Tensor]) -> Any:
    """Convert a value to JSON types.

    Args:
        value: the value: numbers, texts, tensors, None, or lists and mappings of these.
        tensors: list to which the tensors of the value are appended. The result has their index in this list.

    Raises:
        TypeError: if the value contains an object of any other type.
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
    raise TypeError(f"expected numbers, texts, tensors, or lists and mappings of these, got {type(value).__name__}")


def from_plain(value: Any, tensors: list[Tensor]) -> Any:
    """Convert JSON types back to a value. Long strings are shortened and cleaned, and tuples become lists.

    Args:
        value: result of `to_plain`.
        tensors: tensors to which the value refers by index.

    Raises:
        ValueError: if `value` does not have the format of `to_plain`.
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


def read_states() -> dict[str, Any]:
    """Return the states of Python's, NumPy's and torch's global generators, as JSON types."""
    version, words, gauss = random.getstate()
    state: Any = np.random.get_state()  # noqa: NPY002
    _, keys, place, has_gauss, cached = state
    return {
        "python": [version, list(words), gauss],
        "numpy": [keys.tolist(), int(place), int(has_gauss), float(cached)],
        "torch": base64.b64encode(torch.get_rng_state().numpy().tobytes()).decode(),
    }


def set_states(states: Any) -> None:
    """Set the global generators to states received from a different process.

    Raises:
        ValueError: if the states are invalid.
    """
    try:
        version, words, gauss = states["python"]
        keys, place, has_gauss, cached = states["numpy"]
        bits = base64.b64decode(states["torch"], validate=True)
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError("the states of the random generators are incomplete") from error
    place_of_python = words[-1] if isinstance(words, list) and words else -1
    right = version == 3 and len(bits) == len(torch.get_rng_state()) and has_gauss in (0, 1)
    right &= isinstance(gauss, float | None) and isinstance(cached, float)
    right &= _are_words(words, _WORDS + 1) and _are_words(keys, _WORDS) and _are_words([place, place_of_python], 2)
    if not right or place > _WORDS or place_of_python > _WORDS:
        raise ValueError("the states of the random generators have invalid values")
    try:
        torch.set_rng_state(torch.frombuffer(bytearray(bits), dtype=torch.uint8))
    except RuntimeError as error:
        raise ValueError("the state of torch's random generator has the wrong type or shape") from error
    random.setstate((version, tuple(words), gauss))
    np.random.set_state(("MT19937", np.array(keys, np.uint32), place, has_gauss, cached))  # noqa: NPY002


def state_bytes() -> tuple[Any, ...]:
    """Return a snapshot of the random generators, which is different after a generator was used.

    The call takes about 20 microseconds.
    """
    state: Any = np.random.get_state()  # noqa: NPY002
    return random.getstate(), state[1].tobytes(), state[2:], torch.get_rng_state().numpy().tobytes()


def seed_all(seed: int) -> None:
    """Seed Python's, NumPy's and torch's global generators with an integer >= 0."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)


def _are_words(values: Any, count: int) -> bool:
    return isinstance(values, list) and len(values) == count and all(type(v) is int and 0 <= v < 2**32 for v in values)
