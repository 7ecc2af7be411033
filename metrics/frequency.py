"""Distribution of an image's change over low and high spatial frequencies."""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from math import sqrt
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from .common import (
    Normalisation,
    Sizes,
    check_choice,
    check_pairs,
    grey_levels,
    in_groups,
    l2_divisor,
    nan_where_undefined,
)
from .registry import Reading, Reduction, metric, reduce

Method = Literal["dwt", "published"]
Band = Literal["low", "high"]
READINGS = {
    "published": Reading({"method": "published"}, "as the paper's tables: a Gaussian filter of the Fourier transform"),
    "formula": Reading(
        {"normalisation": "formula"}, "the L2 norm without a divisor, as the paper prints it", (0, math.inf)
    ),
}
CUTOFF = 5.0  # of the published program's Gaussian filter, in cycles per image
SMALL = 1e-5  # added by the published program to the divisor span, and to the high part
LUMA = (0.299, 0.587, 0.114)


@metric(
    symbol="FDL",
    title="Low-frequency distortion",
    robust_when="higher",
    between=(0, 1),
    unit="pixel range",
    source="CANARY (Sun et al. 2023), 3.1.3, AED-FD_L; wavelet as in Luo et al. 2022",
    formula="mean over successes of ||low(xa - x)||_2 / sqrt(N), low: the low band of a Haar transform",
    latex=r"\operatorname{mean}_{\text{successes}} \frac{\lVert \mathrm{low}(x_a - x) \rVert_2}{\sqrt{N}}",
    aliases=("AED-FD", "AED-FD_L"),
    parameter="wavelet",
    readings=READINGS,
    tables=("attacks", "models"),
)
def low_frequency_distortion(
    inputs: Tensor,
    adv_inputs: Tensor,
    success: Tensor | None = None,
    *,
    wavelet: str = "haar",
    normalisation: Normalisation = "rms",
    method: Method = "dwt",
    reduction: Reduction = "mean",
) -> Tensor:
    """Root mean square of the low-frequency part of the change, over successful attacks.

    The low-frequency part is reconstructed from the low band of a one-level wavelet transform, with half-sample
    symmetric borders. For the Haar wavelet, the low-frequency part consists of the means of 2 x 2 blocks (smaller at an
    odd border), and FDL^2 + FDH^2 = AED^2 for each image. CANARY's paper does not name the wavelet.

    Args:
        inputs: clean images in [0, 1], shape (N, C, H, W).
        adv_inputs: adversarial images in [0, 1], shape (N, C, H, W).
        success: whether each attack succeeded, shape (N,), bool. Only successes count. None means that all images
            count.
        wavelet: name of a discrete wavelet of PyWavelets, such as "haar", "db4", "sym8" or "bior2.2".
        normalisation: divisor of the L2 norm, for n = C H W values in an image. "rms" divides by sqrt(n). "published"
            divides by sqrt(3 n), as for AED in Table 5 of CANARY's paper. "formula" does not divide, as in the printed
            formula.
        method: "dwt" for the wavelet transform, or "published" to reproduce CANARY's program. The program converts
            images to grey (n = H W), filters the Fourier transform with a Gaussian, stretches each band to 8 bits by
            truncation, and swaps the two bands. For an even size, the centre of the filter is off by one.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A share of the pixel range, as a scalar. For "none", one value for each image, shape (N,), and NaN for images
        that do not count. Unchanged images give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    sizes = check_pairs(inputs, adv_inputs, success)
    norm = _band_norm(sizes, "low", wavelet, normalisation, method)
    return reduce(nan_where_undefined(in_groups(norm, inputs, adv_inputs), success), reduction)


@metric(
    symbol="FDH",
    title="High-frequency distortion",
    robust_when="higher",
    between=(0, 1),
    unit="pixel range",
    source="CANARY (Sun et al. 2023), 3.1.3, AED-FD_H; wavelet as in Luo et al. 2022",
    formula="mean over successes of ||d - low(d)||_2 / sqrt(N), d = xa - x, low: the low band of a Haar transform",
    latex=r"\operatorname{mean}_{\text{successes}} \frac{\lVert \delta - \mathrm{low}(\delta) \rVert_2}{\sqrt{N}}, "
    r"\quad \delta = x_a - x",
    aliases=("AED-FD", "AED-FD_H"),
    parameter="wavelet",
    readings=READINGS,
    tables=("attacks", "models"),
)
def high_frequency_distortion(
    inputs: Tensor,
    adv_inputs: Tensor,
    success: Tensor | None = None,
    *,
    wavelet: str = "haar",
    normalisation: Normalisation = "rms",
    method: Method = "dwt",
    reduction: Reduction = "mean",
) -> Tensor:
    """Root mean square of the high-frequency part of the change, over successful attacks.

    The high-frequency part is the change minus the low-frequency part (see `low_frequency_distortion`).

    Args:
        inputs: clean images in [0, 1], shape (N, C, H, W).
        adv_inputs: adversarial images in [0, 1], shape (N, C, H, W).
        success: whether each attack succeeded, shape (N,), bool. Only successes count. None means that all images
            count.
        wavelet: name of a discrete wavelet of PyWavelets, such as "haar".
        normalisation: divisor of the L2 norm: "rms", "published" or "formula" (see `low_frequency_distortion`).
        method: "dwt" for the wavelet transform, or "published" to reproduce CANARY's program.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A share of the pixel range, as a scalar. For "none", one value for each image, shape (N,), and NaN for images
        that do not count. Unchanged images give 0.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    sizes = check_pairs(inputs, adv_inputs, success)
    norm = _band_norm(sizes, "high", wavelet, normalisation, method)
    return reduce(nan_where_undefined(in_groups(norm, inputs, adv_inputs), success), reduction)


def _band_norm(
    sizes: Sizes, band: Band, wavelet: str, normalisation: Normalisation, method: Method
) -> Callable[[Tensor, Tensor], Tensor]:
    check_choice("method", method, ("dwt", "published"))
    if method == "published" and sizes["C"] not in (1, 3):
        raise ValueError(f"expected images of 1 or 3 channels for the published method, got {sizes['C']}")
    pixels = sizes["H"] * sizes["W"]
    divisor = l2_divisor(pixels * (sizes["C"] if method == "dwt" else 1), normalisation)
    divisor = 1.0 if normalisation == "formula" else divisor
    if method == "published" and wavelet != "haar":
        raise ValueError(f"the method 'published' does not use a wavelet; use method='dwt' for the wavelet {wavelet!r}")
    if method == "published":
        norm = {"low": _published_low, "high": _published_high}[band]
    elif wavelet in ("haar", "db1"):  # 30 times as fast as the matrices at 224 x 224, 9 times as fast as PyWavelets
        norm = {"low": _haar_low, "high": _haar_high}[band]
    else:
        rows, columns = (_low_pass(sizes[side], wavelet) for side in "HW")
        norm = partial(_wavelet_norm, band, rows, columns)
    return lambda inputs, adv_inputs: norm(inputs, adv_inputs) / divisor


@lru_cache(maxsize=32)
def _low_pass(size: int, wavelet: str) -> np.ndarray:
    """Return the matrix that removes the high band of a one-level wavelet transform along an image axis, float64."""
    import pywt

    try:
        coefficients, _ = pywt.dwt(np.eye(size), wavelet, axis=0)
    except ValueError as error:
        names = "a discrete wavelet of PyWavelets such as 'haar' or 'db4'"
        raise ValueError(f"expected wavelet to be {names}, got {wavelet!r}") from error
    return pywt.idwt(coefficients, None, wavelet, axis=0)[:size]


def _wavelet_norm(band: Band, rows: np.ndarray, columns: np.ndarray, inputs: Tensor, adv_inputs: Tensor) -> Tensor:
    """Return the norm of the low or high band of each image's change.

    Args:
        band: "low" or "high".
        rows: result of `_low_pass` for the height.
        columns: result of `_low_pass` for the width.
        inputs: clean images, shape (N, C, H, W).
        adv_inputs: adversarial images, shape (N, C, H, W).
    """
    change = adv_inputs - inputs
    low = torch.as_tensor(rows).to(change) @ change @ torch.as_tensor(columns).to(change).T
    return _norm(low if band == "low" else change - low)


def _haar_low(inputs: Tensor, adv_inputs: Tensor) -> Tensor:
    """Return the norm of the low Haar band of each image's change, computed without reconstructing the band."""
    return _norm(_haar(_haar(adv_inputs - inputs, -2, "low"), -1, "low")) / 2


def _haar_high(inputs: Tensor, adv_inputs: Tensor) -> Tensor:
    change = adv_inputs - inputs
    across = _norm(_haar(_haar(change, -2, "low"), -1, "high")) / 2
    return torch.hypot(_norm(_haar(change, -2, "high")) * sqrt(0.5), across)


def _haar(values: Tensor, dim: int, band: Band) -> Tensor:
    """Return the low or high Haar coefficients along a dimension, multiplied by sqrt(2).

    If the number of values is odd, the last value belongs to the low band.
    """
    pairs = values.shape[dim] // 2
    first, second = values.narrow(dim, 0, 2 * pairs).unflatten(dim, (pairs, 2)).unbind(dim)
    coefficients = first + second if band == "low" else first - second
    if band == "high" or values.shape[dim] == 2 * pairs:
        return coefficients
    return torch.cat((coefficients, values.narrow(dim, 2 * pairs, 1) * sqrt(2)), dim)


def _norm(values: Tensor) -> Tensor:
    return torch.linalg.vector_norm(values.flatten(1), dim=1)


def _published_low(inputs: Tensor, adv_inputs: Tensor) -> Tensor:
    """Return the norm of the band that CANARY's program calls low.

    The program swaps the bands, so this is the high band.
    """
    return _norm(_filtered(adv_inputs, high=True) - _filtered(inputs, high=True))


def _published_high(inputs: Tensor, adv_inputs: Tensor) -> Tensor:
    """Return the norm of the band that CANARY's program calls high.

    The program swaps the bands, so this is the low band.
    """
    return _norm(_filtered(adv_inputs, high=False) - _filtered(inputs, high=False))


def _filtered(images: Tensor, *, high: bool) -> Tensor:
    """Return grey images filtered in Fourier space. Each is stretched to the range 0 to 1, in steps of 1/255."""
    levels = grey_levels(images)
    luma = images.new_tensor(LUMA)
    grey = torch.einsum("nchw,c->nhw", levels, luma) if images.shape[1] == 3 else levels[:, 0]
    rows, columns = map(_squared_offset, grey.shape[-2:])
    gain = torch.exp(-(rows[:, None] + columns) / (2 * CUTOFF**2)).to(grey)
    part = torch.fft.ifft2(torch.fft.fft2(grey) * (1 - gain if high else gain)).abs()
    least, most = part.flatten(1).aminmax(dim=1)
    span = (most - least)[:, None, None] + SMALL
    stretched = (part - least[:, None, None] + (SMALL if high else 0)) / span
    return (stretched * 255).floor_() / 255


def _squared_offset(size: int) -> Tensor:
    """Return the squared distance of each frequency from the centre of CANARY's filter.

    For an even size, the centre is off by -1.
    """
    return (torch.fft.fftfreq(size, 1 / size, dtype=torch.float64) + size // 2 - (size - 1) // 2).square()
