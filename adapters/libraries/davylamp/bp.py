"""Boundary projection (BP): cross the boundary quickly, then walk along it towards the image."""

import torch
from torch import Tensor

from ...criterion import is_fooled
from .losses import by_image, logit_margin, normalise, round_to_grid
from .queries import Model

_LEAST_MOVE = 0.1  # l2 length below which a move back across the boundary would be lost by rounding
_HALVINGS = 10


def bp(  # noqa: PLR0913 - the parameters of the attack, by keyword
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    *,
    targets: Tensor | None = None,
    steps: int = 100,
    step_size: float | None = None,
    gamma: float = 0.7,
    quantise: bool = False,
) -> Tensor:
    """Boundary projection (Zhang et al. 2020), with the step size of Maho et al. 2021 (RoBIC).

    Stage 1 descends the gradient of the logit margin in growing steps until the image is adversarial. Stage 2 reduces
    the distance. From an adversarial point at distance d, it moves along the tangent of the boundary to a distance of
    `gamma` d. From any other point, it moves down the gradient to a distance of d / `gamma`. `gamma` rises linearly to
    1 over the steps.

    Args:
        model: maps images in [0, 1] to logits, differentiably.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: true classes, shape (n,).
        targets: target classes, shape (n,), for a targeted attack.
        steps: number of forward passes. The last one needs no gradient.
        step_size: l2 step size of stage 1, or None for RoBIC's, which fools a linear model in a third of the steps.
        gamma: initial value of the factor.
        quantise: whether to query 8-bit images only, and choose the steps of stage 2 so that they survive rounding.
            Rounding undoes the small steps of stage 1 on large images.

    Returns:
        The nearest adversarial image found for each image, shape (n, C, H, W), or the clean image if none was found.
    """
    rise = [gamma + (1 - gamma) * step / (steps + 1) for step in range(steps)]
    point, best = inputs, inputs.clone()
    nearest, crossed, length = inputs.new_full((len(inputs),), torch.inf), torch.zeros_like(labels).bool(), None
    for step in range(steps):
        asked = (round_to_grid(point) if quantise else point).detach().requires_grad_(step + 1 < steps)
        logits = model(asked)
        hit, margin = is_fooled(logits.detach(), labels, targets), logit_margin(logits, labels, targets)
        distance = (asked.detach() - inputs).flatten(1).norm(dim=1)
        better = hit & (distance < nearest)
        nearest, best = distance.where(better, nearest), asked.detach().where(by_image(better), best)
        if step + 1 == steps:
            break
        gradient = torch.autograd.grad(margin.sum(), asked)[0]
        if length is None:
            length = _first_length(margin.detach(), gradient, rise, step_size)
        crossed = crossed | hit
        change, upwards = asked.detach() - inputs, normalise(gradient)
        ahead = point.detach() - by_image(rise[step] * length) * upwards
        walked = _stage_2(inputs, change, upwards, hit, rise[step], quantise)
        point = walked.where(by_image(crossed), ahead).clamp(0, 1)
    return best


def _first_length(margin: Tensor, gradient: Tensor, rise: list[float], step_size: float | None) -> Tensor:
    """Return the step size of stage 1 for each image. If it is not given, it follows from RoBIC's equation 7."""
    if step_size is not None:
        return torch.full_like(margin, step_size)
    size = gradient.nan_to_num(0, 0, 0).flatten(1).norm(dim=1).clamp(min=1e-12)
    few = max(1, len(rise) // 3)
    return (margin.clamp(min=0) / size / sum(rise[1 : few + 1])).nan_to_num(0, 0, 0)


def _stage_2(inputs: Tensor, change: Tensor, upwards: Tensor, hit: Tensor, factor: float, quantise: bool) -> Tensor:
    """Return the next point: along the boundary if the current point is adversarial, otherwise back across it."""
    distance, along = change.flatten(1).norm(dim=1), (change * upwards).flatten(1).sum(1)
    # Case OUT. The part of the change that is along the boundary shrinks until the whole has the wanted length.
    wanted = factor * distance
    side = change - by_image(along) * upwards
    if quantise:
        share = _share_after_rounding(inputs, change, side, wanted)
    else:
        width = (distance.square() - along.square()).clamp(min=0).sqrt().clamp(min=1e-12)
        share = (wanted.square() - along.square()).clamp(min=0).sqrt() / width
    closer = change - by_image(1 - share) * side
    # Case IN.
    further = along + ((distance / factor).square() - distance.square() + along.square()).clamp(min=0).sqrt()
    back = change - by_image(further.clamp(min=_LEAST_MOVE) if quantise else further) * upwards
    return inputs + closer.where(by_image(hit), back)


def _share_after_rounding(inputs: Tensor, change: Tensor, side: Tensor, wanted: Tensor) -> Tensor:
    """Find, by bisection, the factor of the tangential part for which the rounded change has the wanted length."""
    low, high = torch.zeros_like(wanted), torch.ones_like(wanted)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        rounded = round_to_grid((inputs + change - by_image(1 - middle) * side).clamp(0, 1)) - inputs
        short = rounded.flatten(1).norm(dim=1) <= wanted
        low, high = middle.where(short, low), high.where(short, middle)
    return low
