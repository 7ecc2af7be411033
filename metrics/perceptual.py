"""Metrics of how visible the change of an image is to people."""

from functools import partial
from math import nan

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from .common import check_pairs, in_groups, nan_where_undefined, values_at_once
from .registry import Reading, Reduction, metric, reduce
from .vgg import Features, load_features, stage_features, stage_weights

SCALE_WEIGHTS = (0.096, 0.596, 0.289, 0.019)
YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))
MASKING, STABILITY = 0.5, 170.0
SMALL = 1e-6
FEATURES_OF = 2**20  # colour values of the images whose features are in memory


@metric(
    symbol="ALMS",
    title="Low-level visual difference (MS-GMSD)",
    robust_when="higher",
    between=(0, float("inf")),
    unit="deviation of gradient similarity",
    source="CANARY (Sun et al. 2023), 3.1.3; Zhang et al. 2017",
    formula="mean over successes of sqrt(sum_j w_j s_j^2), s_j: deviation of gradient similarity, scale j",
    latex=r"\operatorname{mean}_{\text{successes}} \sqrt{\sum_j w_j s_j^2}",
    aliases=("AMS", "MS-GMSD"),
    needs=("perceptual",),
    readings={"chromatic": Reading({"chromatic": True}, "with the colour error, as in the paper's tables; RGB images")},
    tables={"attacks": "ADMS", "models": "ADMS"},
)
def multi_scale_gmsd(
    inputs: Tensor,
    adv_inputs: Tensor,
    success: Tensor | None = None,
    *,
    chromatic: bool = False,
    reduction: Reduction = "mean",
) -> Tensor:
    """Difference of edges at four scales (MS-GMSD), over successful attacks.

    The difference at one scale is the standard deviation of the gradient similarity over the image.

    Args:
        inputs: clean images in [0, 1], grey or RGB, shape (N, C, H, W), at least 17 x 17.
        adv_inputs: adversarial images in [0, 1], shape (N, C, H, W).
        success: whether each attack succeeded, shape (N,), bool. Only successes count. None means that all images
            count.
        chromatic: whether to include the colour error, as in the tables of CANARY's paper. The formula in that paper
            has luma only. The colour error needs RGB images.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        The difference, as a scalar. Below 1 if the colour error is not included. For "none", one value for each image,
        shape (N,), and NaN for images that do not count. Unchanged images give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    sizes = check_pairs(inputs, adv_inputs, success, least=2 ** len(SCALE_WEIGHTS) + 1)
    allowed = (3,) if chromatic else (1, 3)
    if sizes["C"] not in allowed:
        raise ValueError(f"expected images of {' or '.join(map(str, allowed))} channels, got {sizes['C']}")

    def difference(inputs: Tensor, adv_inputs: Tensor) -> Tensor:
        gradients = _gradient_difference(inputs, adv_inputs)
        if not chromatic:
            return gradients
        share = 2 / (1 + 0.32 * torch.exp(-15 * gradients)) - 1
        return share * gradients + (1 - share) * 0.01 * _colour_error(inputs, adv_inputs)

    at_once = 2 * values_at_once(inputs.device)  # many short steps: the cost of a call weighs more than the cache
    return reduce(nan_where_undefined(in_groups(difference, inputs, adv_inputs, at_once=at_once), success), reduction)


@metric(
    symbol="ADMS",
    title="Texture and structure difference (DISTS)",
    robust_when="higher",
    between=(0, 2),
    unit="dissimilarity",
    source="CANARY (Sun et al. 2023), 3.1.3; Ding et al. 2020",
    formula="mean over successes of 1 - sum_ij (alpha_ij l_ij + beta_ij s_ij) over VGG16's features",
    latex=r"\operatorname{mean}_{\text{successes}} "
    r"\left( 1 - \sum_{i,j} (\alpha_{ij} l_{ij} + \beta_{ij} s_{ij}) \right)",
    aliases=("AMS", "DISTS"),
    needs=("perceptual",),
    tables=("attacks", "models"),
)
def dists(
    inputs: Tensor,
    adv_inputs: Tensor,
    success: Tensor | None = None,
    *,
    features: Features | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Difference of texture and structure in the features of VGG16 (DISTS), over successful attacks.

    The value is 1 minus a weighted sum of similarities between channel means (texture) and between channel structures.
    The sum is over the image itself and five stages of VGG16 with Hann-weighted L2 pooling. Images are not resized.

    Args:
        inputs: clean RGB images in [0, 1], shape (N, 3, H, W).
        adv_inputs: adversarial images in [0, 1], shape (N, 3, H, W).
        success: whether each attack succeeded, shape (N,), bool. Only successes count. None means that all images
            count.
        features: torchvision's VGG16 (or its `features`), or the path of its weights. None selects the weights that
            torchvision has already downloaded.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        The difference, as a scalar, usually in [0, 1]. The difference exceeds 1 if the structures are anticorrelated.
        For "none", one value for each image, shape (N,), and NaN for images that do not count. Unchanged images give 0.

    Raises:
        ValueError: if shapes, types or values are not as described, or the features are not those of a VGG16.
        FileNotFoundError: if there is no file of weights.
    """
    sizes = check_pairs(inputs, adv_inputs, success)
    if sizes["C"] != 3:
        raise ValueError(f"expected images of 3 channels, got {sizes['C']}")
    precision = torch.promote_types(inputs.dtype, torch.float32)
    layers = load_features(features, precision, inputs.device)
    difference = partial(_stage_difference, layers, stage_weights(inputs.to(precision)))
    values = inputs.new_full((sizes["N"],), nan, dtype=precision)
    counting = slice(None) if success is None else success
    values[counting] = in_groups(difference, inputs[counting], adv_inputs[counting], at_once=FEATURES_OF)
    return reduce(values, reduction)


@metric(
    symbol="ASS",
    title="Structural similarity (SSIM)",
    robust_when="lower",
    between=(-1, 1),
    unit="similarity",
    source="AISafety (Liu et al. 2021), eq 5; Wang et al. 2004",
    formula="mean over successes of SSIM(x, xa), Gaussian window of 11 x 11, sigma 1.5",
    latex=r"\operatorname{mean}_{\text{successes}} \mathrm{SSIM}(x, x_a)",
    aliases=("SSIM",),
    needs=("perceptual",),
)
def structural_similarity(
    inputs: Tensor, adv_inputs: Tensor, success: Tensor | None = None, *, reduction: Reduction = "mean"
) -> Tensor:
    """Similarity of local brightness, contrast and structure (SSIM), over successful attacks.

    The window is an 11 x 11 Gaussian with standard deviation 1.5 and stays inside the image. The constants are 0.01 and
    0.03. The similarity is computed for each channel and averaged over the channels.

    Args:
        inputs: clean images in [0, 1], shape (N, C, H, W), at least 11 x 11.
        adv_inputs: adversarial images in [0, 1], shape (N, C, H, W).
        success: whether each attack succeeded, shape (N,), bool. Only successes count. None means that all images
            count.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        The similarity, as a scalar. For "none", one value for each image, shape (N,), and NaN for images that do not
        count. Unchanged images give 1.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    import piq

    check_pairs(inputs, adv_inputs, success, least=11)

    def similarity(*images: Tensor) -> Tensor:
        # Convolutions of single channels take half the time in channels-last format.
        inputs, adv_inputs = (each.contiguous(memory_format=torch.channels_last) for each in images)
        value = piq.ssim(inputs, adv_inputs, data_range=1.0, reduction="none", downsample=False)
        return torch.as_tensor(value)

    return reduce(nan_where_undefined(in_groups(similarity, inputs, adv_inputs), success), reduction)


def _gradient_difference(inputs: Tensor, adv_inputs: Tensor) -> Tensor:
    """Return the MS-GMSD of each image's luma, shape (N,).

    The results equal those of piq, in 1/7 to 1/14 of the time (32 x 32 and 224 x 224 pixels).
    """
    total = inputs.new_zeros(len(inputs))
    luma, level = _framed_luma(inputs, adv_inputs)
    for scale, weight in enumerate(SCALE_WEIGHTS):
        if scale:
            luma, level = _halved_frame(luma), level / 4
        loss = _gradient_loss(*_squared_gradient(luma).chunk(2), stability=STABILITY * (3 / level) ** 2).flatten(1)
        deviation = torch.linalg.vector_norm(loss.sub_(loss.mean(1, keepdim=True)), dim=1)
        total += weight * deviation.square() / loss.shape[1]
    return total.sqrt()


def _framed_luma(inputs: Tensor, adv_inputs: Tensor) -> tuple[Tensor, float]:
    """Return the luma of clean images and then adversarial images, with a border of zeros, shape (2 N, H + 2, W + 2).

    The second returned value is the value of 255 grey levels in the unit of the luma.
    """
    height, width = inputs.shape[-2:]
    framed = inputs.new_zeros(2, len(inputs), height + 2, width + 2)  # both in one tensor for half as many calls
    red, green, blue = YIQ[0]
    for images, whole in zip((inputs, adv_inputs), framed, strict=True):
        luma = whole[:, 1:-1, 1:-1]
        if images.shape[1] == 1:
            luma.copy_(images[:, 0])
        else:
            torch.add(images[:, 0], images[:, 1], alpha=green / red, out=luma).add_(images[:, 2], alpha=blue / red)
    return framed.flatten(0, 1), 255 * (1 if inputs.shape[1] == 1 else red)


def _halved_frame(framed: Tensor) -> Tensor:
    """Return framed images at half the resolution: sums of 2 x 2 pixels, again with a border of zeros.

    If a side is odd, the last sums include pixels of the old border.
    """
    height, width = (side - 2 for side in framed.shape[-2:])
    odd = max(height % 2, width % 2)
    height, width = (height + odd) // 2, (width + odd) // 2
    halved = framed.new_zeros(len(framed), height + 2, width + 2)
    rows = framed[:, 1 : 2 * height : 2] + framed[:, 2 : 2 * height + 1 : 2]
    torch.add(rows[..., 1 : 2 * width : 2], rows[..., 2 : 2 * width + 1 : 2], out=halved[:, 1:-1, 1:-1])
    return halved


def _squared_gradient(framed: Tensor) -> Tensor:
    """Return the squared magnitude of the Prewitt gradient, multiplied by nine, for framed images.

    The border is removed.
    """
    rows = (framed[:, :-2] + framed[:, 1:-1]).add_(framed[:, 2:])
    across = rows[..., 2:] - rows[..., :-2]
    steps = torch.sub(framed[:, 2:], framed[:, :-2], out=rows)
    down = (steps[..., :-2] + steps[..., 1:-1]).add_(steps[..., 2:])
    return across.square_().addcmul_(down, down)


def _gradient_loss(squared: Tensor, adv_squared: Tensor, *, stability: float) -> Tensor:
    """Return 1 minus the similarity of two maps of squared gradients. The maps are overwritten."""
    bottom = squared + adv_squared
    product = squared.mul_(adv_squared).sqrt_()
    top = torch.sub(bottom, product, alpha=2, out=adv_squared)
    return top.div_(bottom.sub_(product, alpha=MASKING).add_(stability))


def _colour_error(inputs: Tensor, adv_inputs: Tensor) -> Tensor:
    """Return the root mean square error of the two chroma channels at the coarsest scale, for each image."""
    framed = pad(adv_inputs - inputs, (1, 1, 1, 1)).flatten(0, 1)
    for _ in SCALE_WEIGHTS[1:]:
        framed = _halved_frame(framed).div_(4)
    change = framed[:, 1:-1, 1:-1].unflatten(0, inputs.shape[:2])
    chroma = torch.einsum("nchw,ic->nihw", change, change.new_tensor(YIQ[1:]))
    return 255 * chroma.flatten(2).square().mean(2).sum(1).sqrt()


def _stage_difference(
    layers: nn.Sequential, weights: list[tuple[Tensor, Tensor]], inputs: Tensor, adv_inputs: Tensor
) -> Tensor:
    """Return the DISTS of each pair of images: 1 minus the sum of the similarities in all stages of the network.

    piq's DISTS is not used, because piq downloads two files and resizes images above 256 pixels. The weights in piq sum
    to 0.9999998.
    """
    stages = stage_features(layers, torch.cat((inputs, adv_inputs)))
    alike = [_stage_similarity(maps.flatten(2), *pair) for maps, pair in zip(stages, weights, strict=True)]
    return 1 - torch.stack(alike).sum(0)


def _stage_similarity(maps: Tensor, mean_weights: Tensor, structure_weights: Tensor) -> Tensor:
    """Return the weighted similarity of each pair of images in one stage.

    The first half of `maps` is from clean images.
    """
    means = maps.mean(2)
    centred = maps - means[..., None]
    variances = centred.square().mean(2)
    clean, adversarial = centred.chunk(2)
    covariances = (clean * adversarial).mean(2)
    mean, adv_mean = means.chunk(2)
    variance, adv_variance = variances.chunk(2)
    brightness = (2 * mean * adv_mean + SMALL) / (mean.square() + adv_mean.square() + SMALL)
    structure = (2 * covariances + SMALL) / (variance + adv_variance + SMALL)
    return brightness @ mean_weights + structure @ structure_weights
