"""Distance between the adversarial image and the clean image, pixel by pixel."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from .common import (
    Normalisation,
    check_choice,
    check_images,
    check_pairs,
    grey_levels,
    in_groups,
    l2_divisor,
    nan_where_undefined,
)
from .registry import Reading, Reduction, metric, reduce

INFINITE = float("inf")


@metric(
    symbol="AMD",
    title="Maximum distortion",
    robust_when="higher",
    between=(0, 1),
    unit="pixel range",
    source="CANARY (Sun et al. 2023), 3.1.3",
    formula="mean over successes of max |xa - x|",
    latex=r"\operatorname{mean}_{\text{successes}} \max_j |x_{a,j} - x_j|",
    aliases=("AND",),
    tables=("attacks", "models", "pairs"),
    brief=True,
)
def maximum_distortion(
    inputs: Tensor, adv_inputs: Tensor, success: Tensor | None = None, *, reduction: Reduction = "mean"
) -> Tensor:
    """Largest change of any colour value (L-infinity norm), over successful attacks.

    Args:
        inputs: clean images in [0, 1], shape (N, C, H, W).
        adv_inputs: adversarial images in [0, 1], shape (N, C, H, W).
        success: whether each attack succeeded, shape (N,), bool. Only successes count. None means that all images
            count.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A share of the pixel range, as a scalar. For "none", one value for each image, shape (N,), and NaN for images
        that do not count. Unchanged images give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_pairs(inputs, adv_inputs, success)
    largest = in_groups(lambda clean, attacked: _norm(attacked - clean, INFINITE), inputs, adv_inputs)
    return reduce(nan_where_undefined(largest, success), reduction)


@metric(
    symbol="AED",
    title="Euclidean distortion",
    robust_when="higher",
    between=(0, 1),
    unit="pixel range",
    source="CANARY (Sun et al. 2023), 3.1.3",
    formula="mean over successes of ||xa - x||_2 / sqrt(N)",
    latex=r"\operatorname{mean}_{\text{successes}} \frac{\lVert x_a - x \rVert_2}{\sqrt{N}}",
    aliases=("AND",),
    readings={
        "formula": Reading({"normalisation": "formula"}, "divided by N, as the paper prints it"),
        "published": Reading({"normalisation": "published"}, "divided by sqrt(3 N), which fits the paper's Table 5"),
    },
    tables=("attacks", "models", "pairs"),
    brief=True,
)
def euclidean_distortion(
    inputs: Tensor,
    adv_inputs: Tensor,
    success: Tensor | None = None,
    *,
    normalisation: Normalisation = "rms",
    reduction: Reduction = "mean",
) -> Tensor:
    """Root mean square change of the colour values (normalised L2 norm), over successful attacks.

    The formula in CANARY's paper is ||xa - x||_2 / N, but the values in Table 5 agree with the divisor sqrt(3 N).

    Args:
        inputs: clean images in [0, 1], shape (N, C, H, W).
        adv_inputs: adversarial images in [0, 1], shape (N, C, H, W).
        success: whether each attack succeeded, shape (N,), bool. Only successes count. None means that all images
            count.
        normalisation: divisor of the L2 norm, for n = C H W values in an image. "rms" divides by sqrt(n). "published"
            divides by sqrt(3 n), as in Table 5 of CANARY's paper. "formula" divides by n, as in the printed formula.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A share of the pixel range, as a scalar. For "none", one value for each image, shape (N,), and NaN for images
        that do not count. Unchanged images give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_pairs(inputs, adv_inputs, success)
    divisor = l2_divisor(inputs.shape[1:].numel(), normalisation)
    norm = in_groups(lambda clean, attacked: _norm(attacked - clean, 2), inputs, adv_inputs)
    return reduce(nan_where_undefined(norm / divisor, success), reduction)


@metric(
    symbol="APCR",
    title="Pixel change ratio",
    robust_when="higher",
    between=(0, 1),
    source="CANARY (Sun et al. 2023), 3.1.3",
    formula="mean over successes of #{values whose 8-bit level changed} / N",
    latex=r"\operatorname{mean}_{\text{successes}} \frac{1}{N} \sum_j [r(x_{a,j}) \neq r(x_j)]",
    aliases=("AND",),
    readings={
        "truncate": Reading({"rounding": "truncate"}, "levels cut to 8 bits, as the paper's program does"),
        "exact": Reading({"rounding": "exact"}, "values that differ, without rounding"),
        "pixel": Reading({"unit": "pixel"}, "pixels of which any channel changed"),
    },
    tables=("attacks", "models"),
)
def pixel_change_ratio(
    inputs: Tensor,
    adv_inputs: Tensor,
    success: Tensor | None = None,
    *,
    rounding: Literal["round", "truncate", "exact"] = "round",
    unit: Literal["value", "pixel"] = "value",
    reduction: Reduction = "mean",
) -> Tensor:
    """Share of the colour values that differ after both images are rounded to 8 bits, over successful attacks.

    Args:
        inputs: clean images in [0, 1], shape (N, C, H, W).
        adv_inputs: adversarial images in [0, 1], shape (N, C, H, W).
        success: whether each attack succeeded, shape (N,), bool. Only successes count. None means that all images
            count.
        rounding: conversion of both images to 8 bits. "round" selects the nearest level. "truncate" selects the level
            below, as CANARY's program does. "exact" compares the values without conversion.
        unit: what is counted. "value" counts every colour value that changed. "pixel" counts every pixel in which at
            least one channel changed.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A fraction, as a scalar. For "none", one value for each image, shape (N,), and NaN for images that do not count.
        Unchanged images give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_pairs(inputs, adv_inputs, success)
    check_choice("rounding", rounding, ("round", "truncate", "exact"))
    check_choice("unit", unit, ("value", "pixel"))
    stored = {"round": grey_levels, "truncate": lambda images: (images * 255).floor_(), "exact": torch.clone}

    def changed(inputs: Tensor, adv_inputs: Tensor) -> Tensor:
        differs = stored[rounding](inputs).ne_(stored[rounding](adv_inputs))
        return (differs.amax(1) if unit == "pixel" else differs).flatten(1).mean(1)

    ratio = in_groups(changed, inputs, adv_inputs)
    return reduce(nan_where_undefined(ratio, success), reduction)


@metric(
    symbol="ALD",
    title="Relative distortion",
    robust_when="higher",
    between=(0, INFINITE),
    unit="ratio of norms",
    source="AISafety (Liu et al. 2021), eq 4; DEEPSEC (Ling et al. 2019)",
    formula="mean over successes of ||xa - x||_p / ||x||_p, p = 2 by default (ALD@inf for p = inf)",
    latex=r"\operatorname{mean}_{\text{successes}} \frac{\lVert x_a - x \rVert_p}{\lVert x \rVert_p}",
    aliases=("ALD_p",),
    parameter="p",
    usual=2,
)
def relative_distortion(
    inputs: Tensor, adv_inputs: Tensor, success: Tensor | None = None, p: float = 2, *, reduction: Reduction = "mean"
) -> Tensor:
    """Norm of the change divided by the norm of the clean image, over successful attacks.

    The norm of order 0 is the number of nonzero values.

    Args:
        inputs: clean images in [0, 1], shape (N, C, H, W).
        adv_inputs: adversarial images in [0, 1], shape (N, C, H, W).
        success: whether each attack succeeded, shape (N,), bool. Only successes count. None means that all images
            count.
        p: order of the norm: 0, 1, 2 or infinity.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A ratio of norms, as a scalar. For "none", one value for each image, shape (N,). NaN for images that do not
        count, and for black clean images. Other unchanged images give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_choice("p", p, (0, 1, 2, INFINITE))
    check_pairs(inputs, adv_inputs, success)
    size = in_groups(lambda images: _norm(images, p), inputs)
    ratio = in_groups(lambda clean, attacked: _norm(attacked - clean, p), inputs, adv_inputs) / size
    return reduce(nan_where_undefined(ratio, size > 0 if success is None else success & (size > 0)), reduction)


@metric(
    symbol="RMSD",
    title="Pixel distance of 8-bit images",
    robust_when="higher",
    between=(0, 255),
    unit="grey levels",
    source="RoBIC (Maho et al. 2021), section 3",
    formula="mean of ||r(xa) - r(x)||_2 / sqrt(N), r the image rounded to grey levels 0..255",
    latex=r"\operatorname{mean} d(x), \quad d(x) = \frac{\lVert r(x_a) - r(x) \rVert_2}{\sqrt{N}}",
)
def pixel_rms_distance(inputs: Tensor, adv_inputs: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Root mean square change of the colour values after both images are rounded to 8 bits.

    Args:
        inputs: clean images in [0, 1], shape (N, C, H, W).
        adv_inputs: adversarial images in [0, 1], shape (N, C, H, W).
        reduction: "mean" or "sum" over the images, or "none".

    Returns:
        Grey levels, 0 to 255, as a scalar. For "none", one value for each image, shape (N,). Unchanged images give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_images(inputs=inputs, adv_inputs=adv_inputs)
    divisor = l2_divisor(inputs.shape[1:].numel(), "rms")
    norm = in_groups(lambda clean, attacked: _norm(grey_levels(attacked) - grey_levels(clean), 2), inputs, adv_inputs)
    return reduce(norm / divisor, reduction)


@metric(
    symbol="PSNR",
    title="Peak signal-to-noise ratio",
    robust_when="lower",
    between=(0, INFINITE),
    unit="dB",
    source="RoBIC (Maho et al. 2021), section 3",
    formula="mean of 20 log10(255 / d), d the pixel distance of the 8-bit images (RMSD)",
    latex=r"\operatorname{mean} 20 \log_{10} \frac{255}{d(x)}",
)
def peak_signal_to_noise_ratio(inputs: Tensor, adv_inputs: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Peak signal-to-noise ratio of the 8-bit images, in decibels: 20 log10(255 / RMSD).

    Args:
        inputs: clean images in [0, 1], shape (N, C, H, W).
        adv_inputs: adversarial images in [0, 1], shape (N, C, H, W).
        reduction: "mean" or "sum" over the images, or "none".

    Returns:
        Decibels, as a scalar. For "none", one value for each image, shape (N,). Infinite for two images that are equal
        in 8 bits. One such image makes the mean infinite.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    return reduce(20 * (255 / pixel_rms_distance(inputs, adv_inputs, reduction="none")).log10(), reduction)


@metric(
    symbol="PSD",
    title="Perturbation sensitivity distance",
    robust_when="higher",
    between=(0, INFINITE),
    unit="change over local deviation, summed",
    source="AISafety (Liu et al. 2021), eq 6; after Luo et al. 2018",
    formula="mean over successes of the sum over values j of |xa_j - x_j| / sd(3 x 3 region of x around j)",
    latex=r"\operatorname{mean}_{\text{successes}} \sum_j \frac{|x_{a,j} - x_j|}{\mathrm{sd}(R_j(x))}",
    readings={
        "product": Reading(
            {"weighting": "product"}, "change multiplied by the deviation, as in AISafety's program and its Table VIII"
        ),
        "complement": Reading(
            {"weighting": "complement"}, "change multiplied by 1 - deviation, as in DEEPSEC's program"
        ),
    },
)
def perturbation_sensitivity_distance(
    inputs: Tensor,
    adv_inputs: Tensor,
    success: Tensor | None = None,
    *,
    weighting: Literal["inverse", "complement", "product"] = "inverse",
    reduction: Reduction = "mean",
) -> Tensor:
    """Sum of the changes of all colour values, with larger weights in flat regions, over successful attacks.

    Each change is weighted by the local deviation: the population standard deviation of the clean channel in the 3 x 3
    region around the value. The image is mirrored at its border.

    Args:
        inputs: clean images in [0, 1], shape (N, C, H, W), at least 2 x 2.
        adv_inputs: adversarial images in [0, 1], shape (N, C, H, W).
        success: whether each attack succeeded, shape (N,), bool. Only successes count. None means that all images
            count.
        weighting: weight of a change, for local deviation s. "inverse" is 1 / s, as in the formula of the AISafety
            paper. "complement" is 1 - s, as in DEEPSEC's program. "product" is s, as in AISafety's program and the
            paper's Table VIII.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        The weighted sum, as a scalar. For "none", one value for each image, shape (N,), and NaN for images that do not
        count. For "inverse", the sum is infinite if a value changes in a flat region. Unchanged images give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    check_pairs(inputs, adv_inputs, success, least=2)
    check_choice("weighting", weighting, ("inverse", "complement", "product"))

    def weighted(inputs: Tensor, adv_inputs: Tensor) -> Tensor:
        deviation, change = _local_deviation(inputs), (adv_inputs - inputs).abs()
        if weighting == "inverse":
            change = (change / deviation).where(change > 0, 0)
        else:
            change *= deviation if weighting == "product" else 1 - deviation
        return change.flatten(1).sum(1)

    return reduce(nan_where_undefined(in_groups(weighted, inputs, adv_inputs), success), reduction)


def _norm(images: Tensor, p: float) -> Tensor:
    values = images.flatten(1)
    return (
        torch.maximum(values.amax(1), -values.amin(1))
        if p == INFINITE
        else torch.linalg.vector_norm(values, ord=p, dim=1)
    )


def _local_deviation(images: Tensor) -> Tensor:
    """Return the population standard deviation of every 3 x 3 region, with the shape of the images.

    The deviation is computed from differences to the centre, because these are exactly 0 in flat regions.
    """
    height, width = images.shape[-2:]
    mirrored = pad(images, (1, 1, 1, 1), mode="reflect")
    total, squares = torch.zeros_like(images), torch.zeros_like(images)
    for row in range(3):
        for column in range(3):
            offset = mirrored[..., row : row + height, column : column + width] - images
            total += offset
            squares += offset.square()
    return (squares / 9 - (total / 9).square()).clamp_min(0).sqrt()
