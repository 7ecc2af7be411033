"""Symbols that carry a parameter of their metric, "QI_Wup@0.5", "ALD@inf", or a set or layer, "KMNCov@clean"."""

import math
from collections.abc import Mapping
from typing import Any

from ..adapters.parameters import parse_number
from ..errors import InvalidInput
from .measure_groups import COVERAGES

PARAMETER_OF: Mapping[str, str] = {
    "ALD": "p",
    **dict.fromkeys(("QI_Wup", "QI_Vis", "QI_Wup_T", "QI_Vis_T"), "threshold"),
}
PARTS_OF = (*COVERAGES, "NS", "NU")  # metrics that have a value for each layer; coverages also before the attack
CLEAN = "clean"


def base_of(symbol: str) -> str:
    """The metric of a symbol: "QI_Wup" of "QI_Wup@0.5"; the symbol itself without a value."""
    base, at, _ = symbol.partition("@")
    return base if at and (base in PARAMETER_OF or base in PARTS_OF) else symbol


def is_parametrised(symbol: str) -> bool:
    """Whether a symbol carries a value of its metric's parameter."""
    return "@" in symbol and symbol.partition("@")[0] in PARAMETER_OF


def options_of(symbol: str) -> dict[str, Any]:
    """The parameter that a symbol carries, by name.

    Raises:
        InvalidInput: if it is no number that the metric takes.
    """
    base, _, text = symbol.partition("@")
    name = PARAMETER_OF[base]
    number = math.inf if name == "p" and text == "inf" else parse_number(text, f"{name} of {base}")
    if name == "p" and not (number > 0):
        raise InvalidInput(f"expected p > 0, or inf, of {base}, got {text}")
    if name == "threshold" and not -1 <= number <= 1:
        raise InvalidInput(f"expected a threshold from -1 to 1 of {base}, got {text}")
    return {name: number}
