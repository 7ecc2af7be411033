"""Coverage of a test set: how much of the activation ranges of a model's neurons the test set reaches.

A neuron is a scalar unit. In a feature map, each position of each channel is a neuron. With `neurons="channel"`, a
channel of a feature map is one neuron, and its value is the mean over the positions.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from .common import as_float, at_least_float32, check, check_choice
from .registry import metric

Neurons = Literal["unit", "channel"]
VALUES = 2**24  # activations sorted into sections per step


@metric(
    symbol="KMNCov",
    title="k-multisection neuron coverage",
    robust_when=None,
    between=(0, 1),
    source="AISafety (Liu et al. 2021), eq 1; DeepGauge (Ma et al. 2018)",
    formula="sum over neurons of #{sections of [low, high] that are met} / (k |N|)",
    latex=r"\frac{1}{k |U|} \sum_{u \in U} |\{\text{sections of } [l_u, h_u] \text{ that are reached}\}|",
    kind="set",
    needs=("coverage",),
    parameter="layer",
)
def multisection_coverage(
    activations: Tensor, low: Tensor, high: Tensor, sections: int, *, neurons: Neurons = "unit"
) -> Tensor:
    """Share of the sections of the neurons' activation ranges that the test set reaches.

    The range of each neuron on the training set is divided into equal sections. A section includes its lower bound, and
    the last section also its upper bound. Values outside the range do not count. If low = high for a neuron, only the
    first section of the neuron can be reached, by exactly this value.

    Args:
        activations: activations on the test set, shape (N, units) or (N, C, h, w).
        low: smallest value of each neuron on the training set, shape (units,).
        high: largest value of each neuron on the training set, shape (units,).
        sections: number of sections, at least 1.
        neurons: "unit" or "channel". `low` and `high` must refer to the same neurons.

    Returns:
        A fraction, as a scalar. 0 if there are no images.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    units = neuron_values(activations, neurons)
    return as_float(sections_reached(units, low, high, sections), units).mean()


@metric(
    symbol="NBCov",
    title="Neuron boundary coverage",
    robust_when=None,
    between=(0, 1),
    source="AISafety (Liu et al. 2021), eq 2; DeepGauge (Ma et al. 2018)",
    formula="(#{neurons above high} + #{neurons below low}) / (2 |N|)",
    latex=r"\frac{|\{u : f_u > h_u\}| + |\{u : f_u < l_u\}|}{2 |U|}",
    kind="set",
    needs=("coverage",),
    parameter="layer",
)
def boundary_coverage(activations: Tensor, low: Tensor, high: Tensor, *, neurons: Neurons = "unit") -> Tensor:
    """Share of the upper and lower bounds of the neurons' activation ranges that the test set exceeds.

    Args:
        activations: activations on the test set, shape (N, units) or (N, C, h, w).
        low: smallest value of each neuron on the training set, shape (units,).
        high: largest value of each neuron on the training set, shape (units,).
        neurons: "unit" or "channel". `low` and `high` must refer to the same neurons.

    Returns:
        A fraction, as a scalar. 0 for the training set itself, and if there are no images.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    units = neuron_values(activations, neurons)
    above, below = (as_float(side, units) for side in beyond_ranges(units, low, high))
    return (above.mean() + below.mean()) / 2


@metric(
    symbol="SNACov",
    title="Strong neuron activation coverage",
    robust_when=None,
    between=(0, 1),
    source="AISafety (Liu et al. 2021), eq 3; DeepGauge (Ma et al. 2018)",
    formula="#{neurons above high} / |N|",
    latex=r"\frac{|\{u : f_u > h_u\}|}{|U|}",
    kind="set",
    needs=("coverage",),
    parameter="layer",
)
def strong_activation_coverage(activations: Tensor, low: Tensor, high: Tensor, *, neurons: Neurons = "unit") -> Tensor:
    """Share of the neurons whose largest activation on the test set exceeds that on the training set.

    Args:
        activations: activations on the test set, shape (N, units) or (N, C, h, w).
        low: smallest value of each neuron on the training set, shape (units,).
        high: largest value of each neuron on the training set, shape (units,).
        neurons: "unit" or "channel". `low` and `high` must refer to the same neurons.

    Returns:
        A fraction, as a scalar. 0 for the training set itself, and if there are no images.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    units = neuron_values(activations, neurons)
    return as_float(beyond_ranges(units, low, high)[0], units).mean()


@metric(
    symbol="TKNCov",
    title="Top-k neuron coverage",
    robust_when=None,
    between=(0, 1),
    source="AISafety (Liu et al. 2021), Table I; DeepGauge (Ma et al. 2018)",
    formula="#{neurons among the k most active of their layer for some image} / |N|",
    latex=r"\frac{|\{u : \text{among the } k \text{ most active of its layer for some image}\}|}{|U|}",
    kind="set",
    needs=("coverage",),
    parameter="layer",
)
def top_k_coverage(layers: Sequence[Tensor], k: int, *, neurons: Neurons = "unit") -> Tensor:
    """Share of the neurons that are among the k most active of their layer for some image.

    Args:
        layers: activations of each layer on the test set, shape (N, units) or (N, C, h, w).
        k: number of most active neurons per layer and image, from 1 to the number of neurons in the smallest layer.
        neurons: "unit" or "channel".

    Returns:
        A fraction, as a scalar. 0 if there are no images.

    Raises:
        ValueError: if shapes, types or values are not as described, or there is no layer.
    """
    all_units = [neuron_values(layer, neurons, f"layers[{index}]") for index, layer in enumerate(layers)]
    widths = [units.shape[1] for units in all_units]
    if not 1 <= k <= min(widths, default=0):
        raise ValueError(
            f"expected k from 1 to {min(widths, default=0)}, the number of neurons of the smallest layer, got {k}"
        )
    return as_float(torch.cat([most_active(units, k) for units in all_units]), all_units[0]).mean()


def sections_reached(units: Tensor, low: Tensor, high: Tensor, sections: int) -> Tensor:
    """Return whether the test set reaches each section of each neuron's activation range (see `multisection_coverage`).

    To combine the results for several sets of images, use a logical or.

    Args:
        units: values of the neurons, shape (N, units), from `neuron_values`.
        low: smallest value of each neuron on the training set, shape (units,).
        high: largest value of each neuron on the training set, shape (units,).
        sections: number of sections, at least 1.

    Returns:
        Shape (units, sections), bool.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    _check_ranges(units, low, high)
    if sections < 1:
        raise ValueError(f"expected sections >= 1, got {sections}")
    reached = torch.zeros(units.shape[1] * sections, dtype=torch.bool, device=units.device)
    first = torch.arange(units.shape[1], device=units.device) * sections
    span = (high - low).where(high > low, 1)
    for group in _groups(units):
        section = ((group - low) / span * sections).floor().clamp(0, sections - 1).long()
        reached[(first + section)[(group >= low) & (group <= high)]] = True
    return reached.view(-1, sections)


def beyond_ranges(units: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether each neuron exceeds its range on the training set, and whether it falls below the range.

    Returns:
        Two tensors of shape (units,), bool.
    """
    _check_ranges(units, low, high)
    return (units > high).any(0), (units < low).any(0)


def most_active(units: Tensor, k: int) -> Tensor:
    """Return whether each neuron of a layer is among the k most active neurons for some image, bool, shape (units,).

    Args:
        units: values of the neurons, shape (N, units), from `neuron_values`.
        k: number of most active neurons, from 1 to `units`.
    """
    met = torch.zeros_like(units[:1, :], dtype=torch.bool).any(0)
    for group in _groups(units):
        met[group.topk(k).indices.flatten()] = True
    return met


def neuron_values(activations: Tensor, neurons: Neurons = "unit", name: str = "activations") -> Tensor:
    """Return the values of the neurons of a layer, shape (N, units).

    Args:
        activations: output of the layer, shape (N, units) or (N, C, h, w).
        neurons: "unit" for each value of the output, or "channel" for the mean of each channel.
        name: name of `activations` in error messages.

    Raises:
        ValueError: if the activations or `neurons` are not as described.
    """
    check_choice("neurons", neurons, ("unit", "channel"))
    maps = isinstance(activations, Tensor) and activations.ndim == 4
    check({name: activations}, "N C h w" if maps else "N units")
    activations = at_least_float32(activations)
    if not maps:
        return activations
    return activations.mean((2, 3)) if neurons == "channel" else activations.flatten(1)


def _check_ranges(units: Tensor, low: Tensor, high: Tensor) -> None:
    check({"low": low, "high": high}, "units", sizes={"units": units.shape[1]})
    if (low > high).any():
        raise ValueError("expected low <= high for every neuron, got low > high")


def _groups(units: Tensor) -> Iterator[Tensor]:
    yield from units.split(max(VALUES // max(units.shape[1], 1), 1))
