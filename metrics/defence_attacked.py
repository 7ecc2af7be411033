"""Effect of a defence on an attack: the attack on the defended model compared with the attack on the original model."""

from typing import Literal

from torch import Tensor

from .accuracy import true_class_confidence
from .common import check_choice, check_logits, confidence
from .differences import difference
from .distance import euclidean_distortion, maximum_distortion, pixel_change_ratio
from .effect import misclassification_ratio
from .perceptual import dists, multi_scale_gmsd
from .registry import Reading, Reduction, metric, reduce

misclassification_variance = difference(
    misclassification_ratio,
    "misclassification_variance",
    symbol="MRV",
    title="Misclassification ratio variance",
    meaning="Misclassification ratio of the attack on the defended model minus that on the original.",
    formula="MR(defended) - MR(original), each over its model's valid images",
    latex=r"\mathrm{MR}_D - \mathrm{MR}_O",
    aliases=("ACV",),
)


@metric(
    symbol="ARAC",
    title="Reduction of adversarial-class confidence",
    robust_when="higher",
    between=(-1, 1),
    unit="probability",
    source="CANARY (Sun et al. 2023), 3.1.4",
    formula="mean P_O(xa_O)[F_O(xa_O)] - P_D(xa_D)[F_D(xa_D)]",
    latex=r"\operatorname{mean} \left( P_O(x_{a,O})_{F_O(x_{a,O})} - P_D(x_{a,D})_{F_D(x_{a,D})} \right)",
    needs=("confidences",),
    readings={"original": Reading({"of": "original"}, "of the class that the original model predicts, on both models")},
)
def adversarial_confidence_drop(
    adv_logits: Tensor,
    defended_adv_logits: Tensor,
    *,
    of: Literal["each", "original"] = "each",
    reduction: Reduction = "mean",
) -> Tensor:
    """Confidence under attack of the original model minus that of the defended model.

    The confidence of a model is the probability of the class that this model predicts, as CANARY's text says. If the
    defence works, the defended model predicts the true class.

    Args:
        adv_logits: logits of the original model on its adversarial images, shape (N, K).
        defended_adv_logits: logits of the defended model on its adversarial images, shape (N, K).
        of: class whose probability is compared. "each" uses the class that each model predicts. "original" uses the
            class that the original model predicts, for both models.
        reduction: "mean" or "sum" over the images, or "none".

    Returns:
        A difference of probabilities, as a scalar. For "none", one value for each image, shape (N,). Two equal models
        give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_logits(adv_logits=adv_logits, defended_adv_logits=defended_adv_logits)
    check_choice("of", of, ("each", "original"))
    predicted = adv_logits.argmax(1)
    compared = predicted if of == "original" else defended_adv_logits.argmax(1)
    return reduce(confidence(adv_logits, predicted) - confidence(defended_adv_logits, compared), reduction)


true_confidence_gain = difference(
    true_class_confidence,
    "true_confidence_gain",
    of_images=True,
    adversarial=True,
    symbol="AITC",
    title="Increase of true-class confidence",
    unit="probability",
    meaning="Probability of the true class under attack on the defended model minus that on the original.",
    note="The paper prints the original model's probability first, so the opposite sign, and calls it an increase.",
    formula="mean P_D(xa_D)[y] - P_O(xa_O)[y]",
    latex=r"\operatorname{mean} \left( P_D(x_{a,D})_y - P_O(x_{a,O})_y \right)",
)
maximum_distortion_variance = difference(
    maximum_distortion,
    "maximum_distortion_variance",
    symbol="AMDV",
    title="Maximum distortion variance",
    meaning="Maximum distortion that fools the defended model minus that for the original.",
    aliases=("ACV", "ANDV"),
)
euclidean_distortion_variance = difference(
    euclidean_distortion,
    "euclidean_distortion_variance",
    symbol="AEDV",
    title="Euclidean distortion variance",
    meaning="Root mean square change that fools the defended model minus that for the original.",
    aliases=("ACV", "ANDV"),
)
pixel_change_variance = difference(
    pixel_change_ratio,
    "pixel_change_variance",
    symbol="APCRV",
    title="Pixel change ratio variance",
    meaning="Share of 8-bit values changed to fool the defended model minus that for the original.",
    aliases=("ACV", "ANDV"),
)
dists_variance = difference(
    dists,
    "dists_variance",
    symbol="ADMSV",
    title="DISTS variance",
    meaning="Texture and structure difference (DISTS) on the defended model minus that on the original.",
    aliases=("ACV", "AMSV"),
)
multi_scale_gmsd_variance = difference(
    multi_scale_gmsd,
    "multi_scale_gmsd_variance",
    symbol="ALMSV",
    title="MS-GMSD variance",
    meaning="Difference of edges (MS-GMSD) on the defended model minus that on the original.",
    aliases=("ACV", "AMSV"),
)
