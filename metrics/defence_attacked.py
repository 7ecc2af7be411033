"""What a defence changes about an attack: the attack on the defended model against that on the original one.

A difference of means over the images that count has two counts: `summarise` of the values per image of the metric that
is compared, once for each model, gives them.
"""

from typing import Literal

from torch import Tensor

from .common import Normalisation, check_choice, check_classes, check_images, check_logits, check_success, confidence
from .distance import INFINITE, euclidean_distortion, maximum_distortion, pixel_change_ratio
from .perceptual import dists, multi_scale_gmsd
from .registry import Reduction, metric, reduce
from .vgg import Features


@metric(
    symbol="ARAC",
    title="Reduction of adversarial-class confidence",
    robust_when="higher",
    between=(-1, 1),
    unit="probability",
    source="CANARY (Sun et al. 2023), 3.1.4",
    formula="mean P_O(xa_O)[F_O(xa_O)] - P_D(xa_D)[F_D(xa_D)]",
)
def adversarial_confidence_drop(
    adv_logits: Tensor,
    defended_adv_logits: Tensor,
    *,
    of: Literal["each", "original"] = "each",
    reduction: Reduction = "mean",
) -> Tensor:
    """Probability of the prediction under attack on the original model minus that on the defended one.

    To the letter the prediction of each model; with a working defence the defended one predicts the true class.

    Args:
        adv_logits: of the original model on its adversarial images, shape (N, K).
        defended_adv_logits: of the defended model on its adversarial images, shape (N, K).
        of: "each" takes the class that each model predicts, "original" on both the class that the original predicts.
        reduction: "mean" or "sum" over the images, or "none".

    Returns:
        A scalar, or shape (N,) for "none"; a difference of probabilities; 0 for equal models.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_logits(adv_logits=adv_logits, defended_adv_logits=defended_adv_logits)
    check_choice("of", of, ("each", "original"))
    predicted = adv_logits.argmax(1)
    compared = predicted if of == "original" else defended_adv_logits.argmax(1)
    return reduce(confidence(adv_logits, predicted) - confidence(defended_adv_logits, compared), reduction)


@metric(
    symbol="AITC",
    title="Increase of true-class confidence",
    robust_when="higher",
    between=(-1, 1),
    unit="probability",
    source="CANARY (Sun et al. 2023), 3.1.4",
    formula="mean P_D(xa_D)[y] - P_O(xa_O)[y]",
)
def true_confidence_gain(
    adv_logits: Tensor, defended_adv_logits: Tensor, labels: Tensor, *, reduction: Reduction = "mean"
) -> Tensor:
    """Probability of the true class under attack on the defended model minus that on the original.

    Args:
        adv_logits: of the original model on its adversarial images, shape (N, K).
        defended_adv_logits: of the defended model on its adversarial images, shape (N, K).
        labels: true classes, shape (N,), int64.
        reduction: "mean" or "sum" over the images, or "none".

    Returns:
        A scalar, or shape (N,) for "none"; a difference of probabilities; 0 for equal models.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_classes(check_logits(adv_logits=adv_logits, defended_adv_logits=defended_adv_logits), labels=labels)
    return reduce(confidence(defended_adv_logits, labels) - confidence(adv_logits, labels), reduction)


@metric(
    symbol="AMDV",
    title="Maximum distortion variance",
    robust_when="higher",
    between=(-1, 1),
    unit="pixel range",
    source="CANARY (Sun et al. 2023), 3.1.4",
    formula="AMD(defended) - AMD(original)",
    aliases=("ACV", "ANDV"),
)
def maximum_distortion_variance(
    inputs: Tensor,
    adv_inputs: Tensor,
    success: Tensor,
    defended_adv_inputs: Tensor,
    defended_success: Tensor,
) -> Tensor:
    """Maximum distortion that fools the defended model minus that for the original.

    Args:
        inputs: clean images in [0, 1], shape (N, C, H, W).
        adv_inputs: made on the original model, in [0, 1], shape (N, C, H, W).
        success: which images count for the original model, shape (N,), bool.
        defended_adv_inputs: made on the defended model, in [0, 1], shape (N, C, H, W).
        defended_success: which images count for the defended model, shape (N,), bool.

    Returns:
        A scalar; the unit of `maximum_distortion`; NaN if no image counts for one of the models (how many do:
        `summarise` of its values with `reduction="none"`); 0 for equal images.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    _check(inputs, adv_inputs, success, defended_adv_inputs, defended_success)
    defended = maximum_distortion(inputs, defended_adv_inputs, defended_success)
    return defended - maximum_distortion(inputs, adv_inputs, success)


@metric(
    symbol="AEDV",
    title="Euclidean distortion variance",
    robust_when="higher",
    between=(-1, 1),
    unit="pixel range",
    source="CANARY (Sun et al. 2023), 3.1.4",
    formula="AED(defended) - AED(original)",
    aliases=("ACV", "ANDV"),
)
def euclidean_distortion_variance(
    inputs: Tensor,
    adv_inputs: Tensor,
    success: Tensor,
    defended_adv_inputs: Tensor,
    defended_success: Tensor,
    *,
    normalisation: Normalisation = "rms",
) -> Tensor:
    """Root mean square change that fools the defended model minus that for the original.

    Args:
        inputs: clean images in [0, 1], shape (N, C, H, W).
        adv_inputs: made on the original model, in [0, 1], shape (N, C, H, W).
        success: which images count for the original model, shape (N,), bool.
        defended_adv_inputs: made on the defended model, in [0, 1], shape (N, C, H, W).
        defended_success: which images count for the defended model, shape (N,), bool.
        normalisation: as in `euclidean_distortion`.

    Returns:
        A scalar; the unit of `euclidean_distortion`; NaN if no image counts for one of the models (how many do:
        `summarise` of its values with `reduction="none"`); 0 for equal images.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    _check(inputs, adv_inputs, success, defended_adv_inputs, defended_success)
    defended = euclidean_distortion(inputs, defended_adv_inputs, defended_success, normalisation=normalisation)
    return defended - euclidean_distortion(inputs, adv_inputs, success, normalisation=normalisation)


@metric(
    symbol="APCRV",
    title="Pixel change ratio variance",
    robust_when="higher",
    between=(-1, 1),
    unit="fraction",
    source="CANARY (Sun et al. 2023), 3.1.4",
    formula="APCR(defended) - APCR(original)",
    aliases=("ACV", "ANDV"),
)
def pixel_change_variance(
    inputs: Tensor,
    adv_inputs: Tensor,
    success: Tensor,
    defended_adv_inputs: Tensor,
    defended_success: Tensor,
    *,
    rounding: Literal["round", "truncate", "exact"] = "round",
    unit: Literal["value", "pixel"] = "value",
) -> Tensor:
    """Share of 8-bit values changed to fool the defended model minus that for the original.

    Args:
        inputs: clean images in [0, 1], shape (N, C, H, W).
        adv_inputs: made on the original model, in [0, 1], shape (N, C, H, W).
        success: which images count for the original model, shape (N,), bool.
        defended_adv_inputs: made on the defended model, in [0, 1], shape (N, C, H, W).
        defended_success: which images count for the defended model, shape (N,), bool.
        rounding: as in `pixel_change_ratio`.
        unit: as in `pixel_change_ratio`.

    Returns:
        A scalar; the unit of `pixel_change_ratio`; NaN if no image counts for one of the models (how many do:
        `summarise` of its values with `reduction="none"`); 0 for equal images.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    _check(inputs, adv_inputs, success, defended_adv_inputs, defended_success)
    defended = pixel_change_ratio(inputs, defended_adv_inputs, defended_success, rounding=rounding, unit=unit)
    return defended - pixel_change_ratio(inputs, adv_inputs, success, rounding=rounding, unit=unit)


@metric(
    symbol="ADMSV",
    title="DISTS variance",
    robust_when="higher",
    between=(-2, 2),
    unit="dissimilarity",
    source="CANARY (Sun et al. 2023), 3.1.4",
    formula="ADMS(defended) - ADMS(original)",
    aliases=("ACV", "AMSV"),
)
def dists_variance(
    inputs: Tensor,
    adv_inputs: Tensor,
    success: Tensor,
    defended_adv_inputs: Tensor,
    defended_success: Tensor,
    *,
    features: Features | None = None,
) -> Tensor:
    """Texture and structure difference (DISTS) on the defended model minus that on the original.

    Args:
        inputs: clean images in [0, 1], shape (N, C, H, W).
        adv_inputs: made on the original model, in [0, 1], shape (N, C, H, W).
        success: which images count for the original model, shape (N,), bool.
        defended_adv_inputs: made on the defended model, in [0, 1], shape (N, C, H, W).
        defended_success: which images count for the defended model, shape (N,), bool.
        features: VGG16 or the path of its weights, as in `dists`.

    Returns:
        A scalar; the unit of `dists`; NaN if no image counts for one of the models (how many do:
        `summarise` of its values with `reduction="none"`); 0 for equal images.

    Raises:
        ValueError: if shapes, types or values are not as described.
        FileNotFoundError: if there are no weights of VGG16.
    """
    _check(inputs, adv_inputs, success, defended_adv_inputs, defended_success)
    defended = dists(inputs, defended_adv_inputs, defended_success, features=features)
    return defended - dists(inputs, adv_inputs, success, features=features)


@metric(
    symbol="ALMSV",
    title="MS-GMSD variance",
    robust_when="higher",
    between=(-INFINITE, INFINITE),
    unit="deviation of gradient similarity",
    source="CANARY (Sun et al. 2023), 3.1.4",
    formula="ALMS(defended) - ALMS(original)",
    aliases=("ACV", "AMSV"),
)
def multi_scale_gmsd_variance(
    inputs: Tensor,
    adv_inputs: Tensor,
    success: Tensor,
    defended_adv_inputs: Tensor,
    defended_success: Tensor,
    *,
    chromatic: bool = False,
) -> Tensor:
    """Difference of edges (MS-GMSD) on the defended model minus that on the original.

    Args:
        inputs: clean images in [0, 1], shape (N, C, H, W).
        adv_inputs: made on the original model, in [0, 1], shape (N, C, H, W).
        success: which images count for the original model, shape (N,), bool.
        defended_adv_inputs: made on the defended model, in [0, 1], shape (N, C, H, W).
        defended_success: which images count for the defended model, shape (N,), bool.
        chromatic: as in `multi_scale_gmsd`.

    Returns:
        A scalar; the unit of `multi_scale_gmsd`; NaN if no image counts for one of the models (how many do:
        `summarise` of its values with `reduction="none"`); 0 for equal images.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    _check(inputs, adv_inputs, success, defended_adv_inputs, defended_success)
    defended = multi_scale_gmsd(inputs, defended_adv_inputs, defended_success, chromatic=chromatic)
    return defended - multi_scale_gmsd(inputs, adv_inputs, success, chromatic=chromatic)


def _check(
    inputs: Tensor, adv_inputs: Tensor, success: Tensor, defended_adv_inputs: Tensor, defended_success: Tensor
) -> None:
    """Check the arguments of a difference of distortions under the names that the caller knows."""
    sizes = check_images(inputs=inputs, adv_inputs=adv_inputs, defended_adv_inputs=defended_adv_inputs)
    check_success(sizes, success=success, defended_success=defended_success)
