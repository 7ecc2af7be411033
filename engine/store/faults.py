"""Whose fault invalid results are, image by image, and what is then left open: every view of a folder asks here."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from ...adapters.result import Fault, fault_of

# Columns of what rankings are made of.
FAULTS: Mapping[str, Fault] = {"invalid_by_model": "model", "invalid_by_library": "library"}


def invalid_by(columns: Any, who: Fault) -> np.ndarray:
    """Attacked images whose result is invalid through the model or the library, (n,) bool; none where nobody said why.

    Args:
        columns: of a cell: "violated", and "violations" unless it is an old one.
        who: see `fault_of`.
    """
    violated = np.asarray(columns["violated"], bool)
    if "violations" not in columns or not violated.any():
        return np.zeros(len(violated), bool)
    return violated & np.array([_fault_of(text) == who for text in columns["violations"]], bool)


def with_faults(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns of a cell with those of `FAULTS` in place of "violations"."""
    kept = {name: array for name, array in columns.items() if name != "violations"}
    return kept | {name: invalid_by(columns, who) for name, who in FAULTS.items()}


def undecided(columns: Mapping[str, np.ndarray], of: Literal["robust", "fooled"]) -> np.ndarray:
    """Attacked images of which nobody knows whether they are robust, or whether the attack fools them, (n,) bool.

    An image that the model failed on is not robust, and one that the library failed on is not fooled by it; any other
    invalid result may be either.
    """
    blamed = invalid_by(columns, "model" if of == "robust" else "library")
    return np.asarray(columns["violated"], bool) & ~blamed


@lru_cache(maxsize=4096)
def _fault_of(text: str) -> Fault:
    return fault_of(text.split())
