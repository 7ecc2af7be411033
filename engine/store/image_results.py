"""What an attack came to on each image: decided here, on reading, and asked for by every view of a folder."""

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ...adapters.result import Fault, fault_of

# Columns of what rankings are made of.
FAULTS: Mapping[str, Fault] = {"invalid_by_model": "model", "invalid_by_library": "library"}


class ImageResults(NamedTuple):
    """Arrays of shape (n,): how far the attack fooled each image, and how robust the model was.

    `fooled` and `robust` are 0 or 1, of a random model the share of its draws. An invalid result counts as 0 in both;
    as 1 in `fooled_at_most` unless it is the library's fault, and in `robust_at_most` unless it is the model's: that
    far nobody knows.

    Attributes:
        attacked: the model is right on the clean image, bool.
        fooled: NaN where an image was not attacked; so is `fooled_at_most`.
        fooled_at_most: see above.
        robust: 0 where an image was not attacked; so is `robust_at_most`.
        robust_at_most: see above.
        violated: attacked, and some rule was broken, whatever a record of 0.1.0 makes of that, bool.
        invalid: the result proves nothing, bool.
        by_model: the model's fault, bool.
        by_library: the library's fault, bool.
    """

    attacked: np.ndarray
    fooled: np.ndarray
    fooled_at_most: np.ndarray
    robust: np.ndarray
    robust_at_most: np.ndarray
    violated: np.ndarray
    invalid: np.ndarray
    by_model: np.ndarray
    by_library: np.ndarray

    @property
    def proven(self) -> np.ndarray:
        """Images whose result is valid, (n,) bool; those that were not attacked, too."""
        return ~self.invalid

    @property
    def undecided_fooled(self) -> np.ndarray:
        """Images of which nobody knows whether the attack fools them, (n,) bool."""
        return self.invalid & ~self.by_library

    @property
    def undecided_robust(self) -> np.ndarray:
        """Images of which nobody knows whether they are robust, (n,) bool."""
        return self.invalid & ~self.by_model

    def at_most(self, values: np.ndarray, invalid: str) -> np.ndarray:
        """The values of a metric if every image of which nobody knows counted as 1, (n,); NaN stays NaN.

        Args:
            values: of each image, (n,), where an invalid result counts as 0.
            invalid: what an invalid result counts as, see `Metric.invalid`; "": it has no value.
        """
        undecided = {"not fooled": self.undecided_fooled, "not robust": self.undecided_robust}.get(invalid)
        return values if undecided is None else np.where(undecided & ~np.isnan(values), 1.0, values)


def results_of(columns: Mapping[str, np.ndarray]) -> ImageResults:
    """What a cell came to.

    Args:
        columns: of its record: "attacked", "success", "violated", and "violations" and "draws_fooled" if it has them.
    """
    attacked, invalid = (np.asarray(columns[name], bool) for name in ("attacked", "violated"))
    by_model, by_library = (invalid_by(columns, who) for who in FAULTS.values())
    shares = np.asarray(columns["success"], float)
    if is_of_draws(columns):
        drawn = np.asarray(columns["draws_fooled"], float)
        shares = np.where(np.isnan(drawn), shares, drawn)
    fooled, robust = np.where(invalid, 0.0, shares), np.where(attacked & ~invalid, 1 - shares, 0.0)
    return ImageResults(
        attacked,
        np.where(attacked, fooled, np.nan),
        np.where(attacked, np.where(invalid & ~by_library, 1.0, fooled), np.nan),
        robust,
        np.where(attacked & invalid & ~by_model, 1.0, robust),
        attacked & (np.asarray(columns["violations"]) != "" if "violations" in columns else invalid),
        invalid,
        by_model,
        by_library,
    )


def is_of_draws(columns: Collection[str]) -> bool:
    """Whether a cell with these columns is of a model that draws random numbers, judged by many draws."""
    return "draws_fooled" in columns


def invalid_by(columns: Mapping[str, np.ndarray], who: Fault) -> np.ndarray:
    """Images whose result is invalid through the model or the library, (n,) bool; none where nobody said why.

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


@lru_cache(maxsize=4096)
def _fault_of(text: str) -> Fault:
    return fault_of(text.split())
