"""The result of an attack on each image: decided here, on reading, and used by every view of a folder.

Whoever adds a reason why a result proves nothing, or a way in which an attack can succeed, changes `ImageResults` (and
`transfers.Transferred` for examples on another model), and no view.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from ...adapters.result import Fault, distance_norm, fault_of, usable_images
from ...adapters.threat_model import ThreatModel
from ...metrics import METRICS, PLAIN, record_of

DETECTED = "detected"  # column of the records of a model with a detector, (n,) bool
SHARES = "draws_fooled"  # column of the records of a random model: the share of its draws that are wrong, (n,)
LEFT_OUT = "detected examples are left out: to be detected is no class of the data"
NOT_MISCLASSIFIED: Mapping[str, float] = {  # what a detected example counts as in the rates that are measured
    symbol: float(record.invalid == "not robust")
    for symbol, record in METRICS.items()
    if record.invalid and record.stored == "measured" and "target" not in record.needs
}


@dataclass(frozen=True, eq=False)
class ImageResults:
    """How far the attack fooled each image, and how robust the model was: arrays of shape (n,), made when asked for.

    `fooled` and `robust` are 0 or 1, of a random model the share of its draws. An invalid result counts as 0 in both;
    as 1 in `fooled_at_most` unless it is the library's fault, and in `robust_at_most` unless it is the model's.

    Args:
        columns: of the cell's record: "attacked", "success", "violated", and "violations", "draws_fooled", "detected"
            and "usable" if it has them; for `usable` of older records the distance in the norm as well.
        threat_model: of the run; None: every example lies within the radius.
    """

    columns: Mapping[str, np.ndarray]
    threat_model: ThreatModel | None = None

    @cached_property
    def attacked(self) -> np.ndarray:
        """Images that the model is right on before the attack, bool."""
        return np.asarray(self.columns["attacked"], bool)

    @cached_property
    def kinds(self) -> np.ndarray:
        """Why a result breaks the rules: kinds of violation with blanks between; "" where it keeps them."""
        if "violations" in self.columns:
            return self.columns["violations"]
        return np.where(self.columns["violated"], "violated", "").astype(object)

    @cached_property
    def invalid(self) -> np.ndarray:
        """Results that prove nothing, bool."""
        return np.asarray(self.columns["violated"], bool)

    @cached_property
    def violated(self) -> np.ndarray:
        """Attacked images whose result breaks a rule, whatever a record of 0.1.0 makes of that, bool."""
        return self.attacked & (self.kinds != "")

    @cached_property
    def by_model(self) -> np.ndarray:
        """Results that are invalid through the model, bool; none where no kind is noted."""
        return self._invalid_by("model")

    @cached_property
    def by_library(self) -> np.ndarray:
        """Results that are invalid through the library, bool; none where no kind is noted."""
        return self._invalid_by("library")

    @cached_property
    def detected(self) -> np.ndarray:
        """Examples that a detector calls adversarial, bool: not misclassified, and without a predicted class."""
        return np.asarray(self.columns[DETECTED], bool) if self.has_detector else np.zeros(len(self.invalid), bool)

    @cached_property
    def usable(self) -> np.ndarray:
        """Images that prove something, bool: attacked, valid, and a success or within the radius."""
        if "usable" in self.columns:
            return self.columns["usable"] & ~self.invalid
        if self.threat_model is None:
            return self.attacked & ~self.invalid
        distance = self.columns[distance_norm(self.threat_model.norm)]
        return usable_images(self.attacked, self.invalid, self.columns["success"], distance, self.threat_model)

    @cached_property
    def fooled(self) -> np.ndarray:
        """Share of the model's predictions that are fooled, in [0, 1]; NaN where an image was not attacked."""
        return np.where(self.attacked, np.where(self.invalid, 0.0, self._share), np.nan)

    @cached_property
    def fooled_at_most(self) -> np.ndarray:
        """The same if every undecided image were fooled."""
        return np.where(self.attacked & self.undecided_fooled, 1.0, self.fooled)

    @cached_property
    def robust(self) -> np.ndarray:
        """Share of the model's predictions that stay right, in [0, 1]; 0 where an image was not attacked."""
        return np.where(self.attacked & ~self.invalid, 1 - self._share, 0.0)

    @cached_property
    def robust_at_most(self) -> np.ndarray:
        """The same if every undecided image were robust."""
        return np.where(self.attacked & self.undecided_robust, 1.0, self.robust)

    @property
    def proven(self) -> np.ndarray:
        """Images whose result is valid, bool; those that were not attacked, too."""
        return ~self.invalid

    @property
    def undecided_fooled(self) -> np.ndarray:
        """Images for which it is unknown whether the attack fools them, bool."""
        return self.invalid & ~self.by_library

    @property
    def undecided_robust(self) -> np.ndarray:
        """Images for which it is unknown whether they are robust, bool."""
        return self.invalid & ~self.by_model

    def at_most(self, values: np.ndarray, invalid: str) -> np.ndarray:
        """The values of a metric if every undecided image counted as 1, (n,); NaN stays NaN.

        Args:
            values: of each image, (n,), where an invalid result counts as 0.
            invalid: what an invalid result counts as, see `Metric.invalid`; "": it has no value.
        """
        undecided = {"not fooled": self.undecided_fooled, "not robust": self.undecided_robust}.get(invalid)
        return values if undecided is None else np.where(undecided & ~np.isnan(values), 1.0, values)

    @property
    def is_random(self) -> bool:
        """Whether the model draws random numbers, and was judged by many draws."""
        return SHARES in self.columns

    @property
    def by_majority(self) -> str:
        """Where MR of a random model is of the majority of its draws, and no share of them; "": nowhere."""
        is_targeted = self.threat_model is not None and self.threat_model.targeted
        return "under targeted attacks" if is_targeted and self.is_random else ""

    @property
    def has_detector(self) -> bool:
        """Whether "detected" is a class of the model, beside those of the data."""
        return DETECTED in self.columns

    @property
    def is_unsteady(self) -> bool:
        """Whether the judge saw the model answer one image differently each time."""
        return any("unstable" in text.split() for text in set(self.kinds))

    @property
    def faults(self) -> dict[str, np.ndarray]:
        """Whose fault invalid results are, as columns of tables."""
        return {"invalid_by_model": self.by_model, "invalid_by_library": self.by_library}

    def invalid_reasons(self) -> tuple[tuple[str, ...], ...]:
        """The kinds of violation of each image; empty where its result keeps the rules."""
        split = {text: tuple(text.split()) for text in set(self.kinds)}
        return tuple(split[text] for text in self.kinds) if any(split) else ((),) * len(self.kinds)

    def leave_detected(self, values: np.ndarray) -> np.ndarray:
        """Values of images, (n,), NaN where the example is detected: for what is about the predicted class."""
        return np.where(self.detected, np.nan, values) if self.has_detector else values

    def _invalid_by(self, who: Fault) -> np.ndarray:
        if "violations" not in self.columns or not self.invalid.any():
            return np.zeros_like(self.invalid)
        return self.invalid & np.array([_fault_of(text) == who for text in self.kinds], bool)

    @cached_property
    def _share(self) -> np.ndarray:
        """Share of the predictions that are fooled, whether or not the result is valid."""
        success = np.asarray(self.columns["success"], float)
        if not self.is_random:
            return success
        drawn = np.asarray(self.columns[SHARES], float)
        return np.where(np.isnan(drawn), success, drawn)


def results_of(columns: Mapping[str, np.ndarray], threat_model: ThreatModel | None = None) -> ImageResults:
    """The results of a cell; see `ImageResults`."""
    return ImageResults(columns, threat_model)


def is_left_out(symbol: str) -> bool:
    """Whether a metric is about the predicted class or the confidences in place of the true class: of no detection."""
    return (record_of(symbol) or PLAIN).of_prediction


@lru_cache(maxsize=4096)
def _fault_of(text: str) -> Fault:
    return fault_of(text.split())
