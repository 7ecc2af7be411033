"""Metrics of adversarial attacks, models and defences; a folder that also works alone (see its README.md).

Functions of tensors, batched, on the device and in the precision of their arguments. `METRICS` maps each symbol to
its record, in the order of the imports below. `reduction="none"` gives one value per image, NaN where the image does
not count; `summarise` turns those into a mean and the number of images that it rests on.
"""

# isort: off
# The order of these imports is the order of METRICS.
from .accuracy import clean_accuracy, macro_f1, true_class_confidence
from .effect import (
    adversarial_accuracy,
    adversarial_class_confidence,
    adversarial_confidence_increase,
    misclassification_ratio,
    noise_tolerance,
    targeted_attack_success,
    true_class_confidence_when_fooled,
    true_confidence_reduction,
)
from .distance import (
    euclidean_distortion,
    maximum_distortion,
    peak_signal_to_noise_ratio,
    perturbation_sensitivity_distance,
    pixel_change_ratio,
    pixel_rms_distance,
    relative_distortion,
)
from .registry import METRICS, Metric, Reduction, Summary, metric, summarise

# isort: on

__all__ = [
    "METRICS",
    "Metric",
    "Reduction",
    "Summary",
    "adversarial_accuracy",
    "adversarial_class_confidence",
    "adversarial_confidence_increase",
    "clean_accuracy",
    "euclidean_distortion",
    "macro_f1",
    "maximum_distortion",
    "metric",
    "misclassification_ratio",
    "noise_tolerance",
    "peak_signal_to_noise_ratio",
    "perturbation_sensitivity_distance",
    "pixel_change_ratio",
    "pixel_rms_distance",
    "relative_distortion",
    "summarise",
    "targeted_attack_success",
    "true_class_confidence",
    "true_class_confidence_when_fooled",
    "true_confidence_reduction",
]
