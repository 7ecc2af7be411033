"""The result of an attack on each image, determined when a folder is read. All commands and reports use it.

New reasons for invalid results, and new kinds of success, belong in `ImageResults`. For examples on other models, they
also belong in `transfers.Transferred`. They do not belong in the code of a command or report.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from ...adapters.result import Fault, distance_norm, fault_of, usable_images
from ...adapters.threat_model import ThreatModel
from ...metrics import METRICS, PLAIN, record_of

DETECTED = "detected"  # column of the records of a model with a detector, (n,) bool
SHARES = "draws_fooled"  # column of the records of a random model: rate of wrong samples, (n,)
LEFT_OUT = "detected examples are omitted, because they have no class of the data"
NOT_MISCLASSIFIED: Mapping[str, float] = {  # value of a detected example in measured rates
    symbol: float(record.invalid == "not robust")
    for symbol, record in METRICS.items()
    if record.invalid and record.stored == "measured" and "target" not in record.needs
}


@dataclass(frozen=True, eq=False)
class ImageResults:
    """Results of an attack on each image: arrays of shape (n,), which are computed when they are needed.

    `fooled` and `robust` are 0 or 1. For a random model, they are the rate over its samples. An invalid result counts
    as 0 in both. It counts as 1 in `fooled_at_most` unless the library caused it. It counts as 1 in `robust_at_most`
    unless the model caused it.

    Args:
        columns: columns of the run's record: "attacked", "success", "violated". If the record has them, also
            "violations", "draws_fooled", "detected" and "usable". Records without "usable" also need the distance in
            the norm.
        threat_model: threat model of the run. None if every example lies within the radius.
    """

    columns: Mapping[str, np.ndarray]
    threat_model: ThreatModel | None = None

    @cached_property
    def attacked(self) -> np.ndarray:
        """Images that the model classifies correctly before the attack, bool."""
        return np.asarray(self.columns["attacked"], bool)

    @cached_property
    def kinds(self) -> np.ndarray:
        """Invalid reasons of each result, separated by spaces; "" if the result is valid."""
        if "violations" in self.columns:
            return self.columns["violations"]
        return np.where(self.columns["violated"], "violated", "").astype(object)

    @cached_property
    def invalid(self) -> np.ndarray:
        """Whether each result is invalid, bool."""
        return np.asarray(self.columns["violated"], bool)

    @cached_property
    def violated(self) -> np.ndarray:
        """Whether each attacked image has an invalid reason, bool. davylamp 0.1.0 may have counted it as valid."""
        return self.attacked & (self.kinds != "")

    @cached_property
    def by_model(self) -> np.ndarray:
        """Whether the model caused each invalid result, bool. False if no reason is recorded."""
        return self._invalid_by("model")

    @cached_property
    def by_library(self) -> np.ndarray:
        """Whether the library caused each invalid result, bool. False if no reason is recorded."""
        return self._invalid_by("library")

    @cached_property
    def detected(self) -> np.ndarray:
        """Whether a detector reports each example as adversarial, bool. Such an example counts as not misclassified."""
        return np.asarray(self.columns[DETECTED], bool) if self.has_detector else np.zeros(len(self.invalid), bool)

    @cached_property
    def usable(self) -> np.ndarray:
        """Whether each image is usable, bool: attacked and valid, and a success or within the radius."""
        if "usable" in self.columns:
            return self.columns["usable"] & ~self.invalid
        if self.threat_model is None:
            return self.attacked & ~self.invalid
        distance = self.columns[distance_norm(self.threat_model.norm)]
        return usable_images(self.attacked, self.invalid, self.columns["success"], distance, self.threat_model)

    @cached_property
    def fooled(self) -> np.ndarray:
        """Share of predictions on each example that are fooled, in [0, 1]. NaN if no attack ran on the image."""
        return np.where(self.attacked, np.where(self.invalid, 0.0, self._share), np.nan)

    @cached_property
    def fooled_at_most(self) -> np.ndarray:
        """Upper bound of `fooled`. An image with an unknown outcome counts as fooled."""
        return np.where(self.attacked & self.undecided_fooled, 1.0, self.fooled)

    @cached_property
    def robust(self) -> np.ndarray:
        """Rate of the model's predictions that stay correct under attack, in [0, 1]. 0 for an image without attack."""
        return np.where(self.attacked & ~self.invalid, 1 - self._share, 0.0)

    @cached_property
    def robust_at_most(self) -> np.ndarray:
        """Upper bound of `robust`. An image with an unknown outcome counts as robust."""
        return np.where(self.attacked & self.undecided_robust, 1.0, self.robust)

    @property
    def proven(self) -> np.ndarray:
        """Whether each result is valid, bool. True for images that were not attacked."""
        return ~self.invalid

    @property
    def undecided_fooled(self) -> np.ndarray:
        """Whether it is unknown if the attack fools the image, bool."""
        return self.invalid & ~self.by_library

    @property
    def undecided_robust(self) -> np.ndarray:
        """Whether it is unknown if the image is robust, bool."""
        return self.invalid & ~self.by_model

    def at_most(self, values: np.ndarray, invalid: str) -> np.ndarray:
        """Return an upper bound of a metric for each image, (n,).

        An image for which the outcome is unknown counts as 1. NaN remains NaN.

        Args:
            values: value of each image, (n,), in which an invalid result counts as 0.
            invalid: how an invalid result counts, see `Metric.invalid`. "" if it has no value.
        """
        undecided = {"not fooled": self.undecided_fooled, "not robust": self.undecided_robust}.get(invalid)
        return values if undecided is None else np.where(undecided & ~np.isnan(values), 1.0, values)

    @property
    def is_random(self) -> bool:
        """Whether the model is random and was judged on several samples."""
        return SHARES in self.columns

    @property
    def by_majority(self) -> str:
        """Attacks for which MR uses the majority of a random model's samples, as a phrase. "" if MR uses their rate."""
        is_targeted = self.threat_model is not None and self.threat_model.targeted
        return "under targeted attacks" if is_targeted and self.is_random else ""

    @property
    def has_detector(self) -> bool:
        """Whether the model has the additional class "detected"."""
        return DETECTED in self.columns

    @property
    def is_unsteady(self) -> bool:
        """Whether the model returned different outputs for the same image while its examples were judged."""
        return any("unstable" in text.split() for text in set(self.kinds))

    @property
    def faults(self) -> dict[str, np.ndarray]:
        """Columns of tables that tell whether the model or the library caused each invalid result."""
        return {"invalid_by_model": self.by_model, "invalid_by_library": self.by_library}

    def invalid_reasons(self) -> tuple[tuple[str, ...], ...]:
        """Return the invalid reasons of each image. An image with a valid result has none."""
        split = {text: tuple(text.split()) for text in set(self.kinds)}
        return tuple(split[text] for text in self.kinds) if any(split) else ((),) * len(self.kinds)

    def leave_detected(self, values: np.ndarray) -> np.ndarray:
        """Return values of a metric of the predicted class, (n,), with NaN for detected examples."""
        return np.where(self.detected, np.nan, values) if self.has_detector else values

    def _invalid_by(self, who: Fault) -> np.ndarray:
        if "violations" not in self.columns or not self.invalid.any():
            return np.zeros_like(self.invalid)
        return self.invalid & np.array([_fault_of(text) == who for text in self.kinds], bool)

    @cached_property
    def _share(self) -> np.ndarray:
        success = np.asarray(self.columns["success"], float)
        if not self.is_random:
            return success
        drawn = np.asarray(self.columns[SHARES], float)
        return np.where(np.isnan(drawn), success, drawn)


def results_of(columns: Mapping[str, np.ndarray], threat_model: ThreatModel | None = None) -> ImageResults:
    """Return the results of a run; see `ImageResults`."""
    return ImageResults(columns, threat_model)


def is_left_out(symbol: str) -> bool:
    """Whether a metric omits detected examples. These are metrics of the predicted class and of confidences."""
    return (record_of(symbol) or PLAIN).of_prediction


@lru_cache(maxsize=4096)
def _fault_of(text: str) -> Fault:
    return fault_of(text.split())
