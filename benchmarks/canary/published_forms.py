"""Distances of CANARY's Tables 5 and 8 in the form that the tables contain, which is not that of the text.

Loaded by path as metrics of a run, so that they are computed while the examples exist.
"""

from torch import Tensor

from davylamp.metrics import (  # pyright: ignore[reportMissingImports] - loaded by path, so not relative
    high_frequency_distortion,
    low_frequency_distortion,
    multi_scale_gmsd,
)

_LEAST = 17  # pixels that four halvings need


def low(inputs: Tensor, adv_inputs: Tensor, success: Tensor) -> Tensor:
    """Return FDL of each success, shape (n,): a Gaussian Fourier filter of rescaled grey images."""
    return low_frequency_distortion(inputs, adv_inputs, success, method="published", reduction="none")


def high(inputs: Tensor, adv_inputs: Tensor, success: Tensor) -> Tensor:
    """Return FDH of each success, shape (n,), as `low`."""
    return high_frequency_distortion(inputs, adv_inputs, success, method="published", reduction="none")


def gradients(inputs: Tensor, adv_inputs: Tensor, success: Tensor) -> Tensor:
    """Return ALMS of each success with the colour error, shape (n,); NaN for images that are grey or below 17 x 17."""
    if inputs.shape[1] != 3 or min(inputs.shape[2:]) < _LEAST:
        return success.double() * float("nan")
    return multi_scale_gmsd(inputs, adv_inputs, success, chromatic=True, reduction="none")
