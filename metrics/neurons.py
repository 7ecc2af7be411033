"""Change of a layer's neurons under attack, and their variance."""

from typing import Literal

from torch import Tensor

from .common import at_least_float32, check, check_choice
from .registry import Reduction, metric, reduce

INFINITE = float("inf")


@metric(
    symbol="NS",
    title="Neuron sensitivity",
    robust_when="lower",
    between=(0, INFINITE),
    unit="activation",
    source="AISafety (Liu et al. 2021), eq 22",
    formula="mean over images and neurons of ||f(x) - f(xa)||_1 / dim(f)",
    latex=r"\operatorname{mean}_{x, u} \frac{\lVert f_u(x) - f_u(x_a) \rVert_1}{\dim f_u}",
    needs=("neurons",),
    parameter="layer",
)
def neuron_sensitivity(activations: Tensor, adv_activations: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Mean absolute change of the activations of a layer under attack.

    The mean is over the positions of a channel, then over the channels, so all values have equal weight. Pass one
    channel (`activations[:, c : c + 1]`) for the sensitivity of one neuron.

    Args:
        activations: activations on the clean images, shape (N, units) or (N, C, h, w).
        adv_activations: activations on the adversarial images, same shape.
        reduction: "mean" or "sum" over the images, or "none".

    Returns:
        A scalar, or shape (N,) for "none"; in the unit of the activations; 0 for equal images.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    dims = _dims(activations)
    check({"activations": activations, "adv_activations": adv_activations}, dims)
    return reduce(
        (at_least_float32(adv_activations) - at_least_float32(activations)).abs().flatten(1).mean(1), reduction
    )


@metric(
    symbol="NU",
    title="Neuron uncertainty",
    robust_when="lower",
    between=(0, INFINITE),
    unit="activation squared",
    source="AISafety (Liu et al. 2021), eq 23",
    formula="mean over images and neurons of the variance of f(x) over its positions",
    latex=r"\operatorname{mean}_{x, u} \, \mathrm{var}(f_u(x))",
    needs=("neurons",),
    parameter="layer",
)
def neuron_uncertainty(
    activations: Tensor, *, over: Literal["positions", "images"] = "positions", reduction: Reduction = "mean"
) -> Tensor:
    """Variance of the neurons of a layer, averaged over them.

    The equation does not state over which values the variance is computed. Pass one channel for the uncertainty of one
    neuron.

    Args:
        activations: activations on the clean images, shape (N, units) or (N, C, h, w).
        over: "positions" for the variance of each channel within an image, 0 for scalar units; "images" for the
            variance of each unit or channel mean over the images. Both are population variances.
        reduction: "mean" or "sum" over the images, or "none" (for "images" the squared deviations of each image).

    Returns:
        A scalar, or shape (N,) for "none"; in the squared unit of the activations.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    dims = _dims(activations)
    check({"activations": activations}, dims)
    check_choice("over", over, ("positions", "images"))
    maps = (
        at_least_float32(activations).flatten(2) if activations.ndim == 4 else at_least_float32(activations)[..., None]
    )
    if over == "positions":
        return reduce((maps - maps.mean(2, keepdim=True)).square().mean((1, 2)), reduction)
    neurons = maps.mean(2)
    return reduce((neurons - neurons.mean(0)).square().mean(1), reduction)


def _dims(activations: Tensor) -> str:
    """Return the names of the dimensions of a layer's activations."""
    return "N C h w" if isinstance(activations, Tensor) and activations.ndim == 4 else "N units"
