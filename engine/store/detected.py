"""Examples that a model with a detector calls adversarial: what they count as in metrics that know classes only."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ...metrics import METRICS, PLAIN, record_of

DETECTED = "detected"  # column of the records of such a model, (n,) bool
LEFT_OUT = "detected examples are left out: to be detected is no class of the data"
NOT_MISCLASSIFIED: Mapping[str, float] = {  # what a detected example counts as in the rates that are measured
    symbol: float(record.invalid == "not robust")
    for symbol, record in METRICS.items()
    if record.invalid and record.stored == "measured" and "target" not in record.needs
}


def is_left_out(symbol: str) -> bool:
    """Whether a metric is about the predicted class or the confidences in place of the true class: of no detection."""
    return (record_of(symbol) or PLAIN).of_prediction


def leave_detected(values: np.ndarray, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Values of images, (n,), NaN where the example is detected."""
    return np.where(columns[DETECTED], np.nan, values) if DETECTED in columns else values


def detected_lines(cells: Iterable[tuple[str, Mapping[str, np.ndarray]]]) -> list[str]:
    """A line for each model with a detector: how many examples it detects, and what they count as.

    Args:
        cells: name of the model and columns of each finished cell.
    """
    counts: dict[str, list[int]] = {}
    for model, columns in cells:
        if DETECTED in columns:
            known = counts.setdefault(model, [0, 0])
            known[0] += int(columns[DETECTED].sum())
            known[1] += int(columns["attacked"].sum())
    return [f"{model}: {_said(count)}" for model, count in counts.items() if count[0]]


def _said(count: Sequence[int]) -> str:
    rates = ", ".join(NOT_MISCLASSIFIED)
    return f"{count[0]} of {count[1]} examples are detected: they count as not misclassified in {rates}"
