"""Metrics of adversarial attacks, models and defences. The folder also works as a separate package (see its README.md).

A metric is a function of batched tensors. The function computes on the device and in the precision of its arguments.
`METRICS` maps the symbol of each metric, such as "MR", to a record that describes the metric. With `reduction="none"`,
a metric returns one value per image, and NaN for images that do not count. `summarise` turns these values into a mean
and the number of images that count.
"""

from typing import TYPE_CHECKING

# isort: off
# The order of these imports is the order of METRICS.
from .accuracy import clean_accuracy, macro_f1, robust_accuracy, true_class_confidence
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
from .attention import grad_cam, predicted_attention_similarity, true_attention_similarity
from .transfer import (
    observable_transfer_rate,
    simple_transfer_of_attack,
    simple_transfer_threat,
    transfer_by_source,
    transfer_by_target,
    transfer_of_attack,
    transfer_threat,
)
from .cost import backward_queries, forward_queries, time_cost_levels
from .distance import (
    euclidean_distortion,
    maximum_distortion,
    peak_signal_to_noise_ratio,
    perturbation_sensitivity_distance,
    pixel_change_ratio,
    pixel_rms_distance,
    relative_distortion,
)
from .frequency import high_frequency_distortion, low_frequency_distortion
from .perceptual import dists, multi_scale_gmsd, structural_similarity
from .defence import (
    accuracy_variance,
    classification_confidence_variance,
    classification_output_stability,
    confidence_variance,
    f1_variance,
    rectify_ratio,
    sacrifice_ratio,
)
from .defence_attacked import (
    adversarial_confidence_drop,
    dists_variance,
    euclidean_distortion_variance,
    maximum_distortion_variance,
    misclassification_variance,
    multi_scale_gmsd_variance,
    pixel_change_variance,
    true_confidence_gain,
)
from .confusion import (
    fooling_rate_at_k,
    fooling_rate_auc,
    semantic_confusion,
    targeted_semantic_confusion,
    targeted_visual_confusion,
    visual_confusion,
    weight_similarity,
)
from .demotion import confusion_within, demotion_rank, largest_demotion_rank, reached_classes, similarity_variance
from .wordnet import imagenet_wup, wup_from_paths
from .coverage import boundary_coverage, multisection_coverage, strong_activation_coverage, top_k_coverage
from .stability import (
    boundary_steps,
    empirical_boundary_distance,
    noise_insensitivity,
    noise_ratios,
    orthogonal_directions,
)
from .neurons import neuron_sensitivity, neuron_uncertainty
from .corruption import (
    corruption_error,
    flip_probability,
    flip_rates,
    mean_corruption_error,
    mean_flip_rate,
    relative_corruption_error,
)
from .curves import (
    HalfDistortion,
    accuracy_curve,
    best_distances,
    empirical_half_distortion,
    half_distortion,
    local_optimality,
    quantised_success,
    success_curve,
)
from .recorded import recorded_mean
from .registry import (
    METRICS,
    NOTATION,
    PLAIN,
    Metric,
    Reading,
    Reduction,
    Summary,
    default_symbols,
    metric,
    aliases_of,
    near_symbols,
    record_of,
    summarise,
    symbols_named,
)

# isort: on

__all__ = [
    "METRICS",
    "NOTATION",
    "PLAIN",
    "HalfDistortion",
    "Metric",
    "Reading",
    "Reduction",
    "Summary",
    "accuracy_curve",
    "accuracy_variance",
    "adversarial_accuracy",
    "adversarial_class_confidence",
    "adversarial_confidence_drop",
    "adversarial_confidence_increase",
    "aliases_of",
    "backward_queries",
    "best_distances",
    "boundary_coverage",
    "boundary_steps",
    "classification_confidence_variance",
    "classification_output_stability",
    "clean_accuracy",
    "confidence_variance",
    "confusion_within",
    "corruption_error",
    "default_symbols",
    "demotion_rank",
    "dists",
    "dists_variance",
    "empirical_boundary_distance",
    "empirical_half_distortion",
    "euclidean_distortion",
    "euclidean_distortion_variance",
    "f1_variance",
    "flip_probability",
    "flip_rates",
    "fooling_rate_at_k",
    "fooling_rate_auc",
    "forward_queries",
    "grad_cam",
    "half_distortion",
    "high_frequency_distortion",
    "imagenet_wup",
    "largest_demotion_rank",
    "local_optimality",
    "low_frequency_distortion",
    "macro_f1",
    "maximum_distortion",
    "maximum_distortion_variance",
    "mean_corruption_error",
    "mean_flip_rate",
    "metric",
    "misclassification_ratio",
    "misclassification_variance",
    "multi_scale_gmsd",
    "multi_scale_gmsd_variance",
    "multisection_coverage",
    "near_symbols",
    "neuron_sensitivity",
    "neuron_uncertainty",
    "noise_insensitivity",
    "noise_ratios",
    "noise_tolerance",
    "observable_transfer_rate",
    "orthogonal_directions",
    "peak_signal_to_noise_ratio",
    "perturbation_sensitivity_distance",
    "pixel_change_ratio",
    "pixel_change_variance",
    "pixel_rms_distance",
    "predicted_attention_similarity",
    "quantised_success",
    "reached_classes",
    "record_of",
    "recorded_mean",
    "rectify_ratio",
    "relative_corruption_error",
    "relative_distortion",
    "robust_accuracy",
    "sacrifice_ratio",
    "semantic_confusion",
    "similarity_variance",
    "simple_transfer_of_attack",
    "simple_transfer_threat",
    "strong_activation_coverage",
    "structural_similarity",
    "success_curve",
    "summarise",
    "symbols_named",
    "targeted_attack_success",
    "targeted_semantic_confusion",
    "targeted_visual_confusion",
    "time_cost_levels",
    "top_k_coverage",
    "transfer_by_source",
    "transfer_by_target",
    "transfer_of_attack",
    "transfer_threat",
    "true_attention_similarity",
    "true_class_confidence",
    "true_class_confidence_when_fooled",
    "true_confidence_gain",
    "true_confidence_reduction",
    "visual_confusion",
    "weight_similarity",
    "wup_from_paths",
]
if not TYPE_CHECKING:  # a metric that no list above names is here all the same
    _others = {record.function.__name__: record.function for record in METRICS.values()}
    globals().update(_others)
    __all__.extend(sorted(_others.keys() - {*__all__}))
