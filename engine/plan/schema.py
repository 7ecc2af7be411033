"""Validates the values of dataclasses against their type hints, with messages of one line that name the field."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, get_type_hints

from ...errors import InvalidInput, UnknownName

_WORDS = {
    "int": "a whole number",
    "float": "a number or a fraction such as 8/255",
    "bool": "true or false",
    "string": "a text",
    "tuple": "a list",
    "list": "a list",
    "dict": "a table such as {steps = 10}",
    "mapping": "a table such as {steps = 10}",
}
_SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


@dataclass(frozen=True)
class Option:
    """Mark in the type hint of a field of `Config`: the field is also a command-line option.

    Args:
        help: help text of the option.
        name: name of the option, without dashes. "" for the name of the field.
        also: alternative name of the option, without dashes. "" for none.
    """

    help: str
    name: str = ""
    also: str = ""


def option_of_field(hint: Any) -> Option | None:
    """Return the `Option` in the type hint of a field; None if the hint contains no `Option`."""
    return next((mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Option)), None)


def check_record(record: type, values: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Check the values for the fields of a dataclass against the type hints, and return the checked values by name.

    Args:
        record: the dataclass.
        values: a value for every field, by name. Lists are converted to tuples. Other types are not converted.
        where: key path of the dataclass in the configuration, such as "attacks[0]".

    Raises:
        InvalidInput: if a value has a wrong type or is out of range. The message begins with the key path of the value.
        UnknownName: if a text is not one of the allowed texts.
    """
    from pydantic import ValidationError

    try:
        checked = _model_of(record).model_validate(_plain(values))
    except ValidationError as error:
        raise explain_validation(error, where) from None
    return {name: getattr(checked, name) for name in type(checked).model_fields}


def format_value(value: Any) -> str:
    """Format a value for an error message, shortened to 60 characters."""
    if isinstance(value, Mapping):
        return "a table"
    try:
        text = json.dumps(value, default=str, ensure_ascii=False)
    except ValueError:  # a number with thousands of digits, or a list that contains itself
        return f"a very long {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


@cache
def _model_of(record: type) -> Any:
    # Loaded when the first record is made: importing davylamp.engine stays quick.
    from pydantic import ConfigDict, create_model

    rules = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)
    fields: Any = {name: (hint, ...) for name, hint in get_type_hints(record, include_extras=True).items()}
    return create_model(record.__name__, __config__=rules, **fields)


def _plain(value: Any) -> Any:
    """Convert lists to tuples and NumPy numbers to Python numbers, also inside tables and lists."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    return value.item() if type(value).__module__ == "numpy" and not getattr(value, "ndim", 1) else value


def explain_validation(validation: Any, where: str = "") -> InvalidInput | UnknownName:
    """Convert a `ValidationError` of pydantic to an error of one line about the first invalid value.

    Args:
        validation: the error. An `InvalidInput` that a validator raised is returned unchanged.
        where: key path of the validated record. "" for the top level.
    """
    error = validation.errors(include_url=False)[0]
    if isinstance(own := error.get("ctx", {}).get("error"), InvalidInput):
        return own
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error["loc"])
    path = f"{where}{path}".lstrip(".")
    explained = _explain_at(path, error)
    explained.path = path
    return explained


def _explain_at(path: str, error: Any) -> InvalidInput | UnknownName:
    kind, limits, value = error["type"], error.get("ctx", {}), error["input"]
    if kind == "literal_error":
        known = [word.strip("'") for word in limits["expected"].replace(" or ", ", ").split(", ")]
        if isinstance(value, str):
            return UnknownName(path, value, known)
        wanted = " or ".join(known)
    elif kind in ("too_short", "string_too_short"):
        wanted = "a text" if kind == "string_too_short" else "at least one value"
    elif kind == "too_long":
        wanted = f"at most {limits['max_length']} values"
    elif bounds := [f"{_SIGNS[name]} {limit:.10g}" for name, limit in limits.items() if name in _SIGNS]:
        wanted = f"{'a number' if 'gt' in limits else 'a whole number'} {bounds[0]}"
    elif kind == "finite_number":
        wanted = "a finite number"
    else:
        wanted = _WORDS.get(kind.partition("_")[0], error["msg"].lower())
    return InvalidInput(f"{path}: expected {wanted}, got {format_value(value)}")
