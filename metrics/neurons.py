"""Change of a layer's activations under attack, and their variance."""

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

    All values of the layer have equal weight. To get the sensitivity of a single neuron, pass only one channel
    (`activations[:, c : c + 1]`).

    Args:
        activations: activations on the clean images, shape (N, units) or (N, C, h, w).
        adv_activations: activations on the adversarial images, same shape.
        reduction: "mean" or "sum" over the images, or "none".

    Returns:
        The mean change, as a scalar, in the unit of the activations. For "none", one value for each image, shape (N,).
        Unchanged images give 0.

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
    """Variance of the activation of a neuron, averaged over the neurons of a layer.

    Equation 23 of the AISafety paper does not state over which values the variance is computed. To get the uncertainty
    of a single neuron, pass only one channel.

    Args:
        activations: activations on the clean images, shape (N, units) or (N, C, h, w).
        over: values over which the population variance is computed. "positions" are the positions of a channel within
            an image. The variance is then 0 for scalar units. "images" are the values of a unit, or the means of a
            channel, in all images.
        reduction: "mean" or "sum" over the images, or "none". For `over="images"`, the value of an image is its mean
            squared deviation.

    Returns:
        The variance, as a scalar, in the squared unit of the activations. For "none", one value for each image, shape
        (N,).

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
    return "N C h w" if isinstance(activations, Tensor) and activations.ndim == 4 else "N units"
