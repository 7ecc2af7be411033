"""Boundary projection (BP): crosses the decision boundary quickly, then moves along the boundary towards the image."""

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
    quantise_after: bool = False,
) -> Tensor:
    """Boundary projection (Zhang et al. 2020), with the step size of Maho et al. 2021 (RoBIC).

    Stage 1 descends the gradient of the logit margin in growing steps until the image is adversarial. Stage 2 then
    reduces the distance d to the clean image. If the current point is adversarial, it moves along the tangent of the
    decision boundary to the distance gamma d. Otherwise it moves down the gradient to the distance d / gamma. In the
    course of the steps, gamma rises linearly to 1.

    Args:
        model: maps images in [0, 1] to logits, differentiably.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: true classes, shape (n,).
        targets: target classes, shape (n,), for a targeted attack.
        steps: number of forward passes. The last pass needs no gradient.
        step_size: l2 step size of stage 1. None for the step size of RoBIC, with which a linear model is fooled in a
            third of the steps.
        gamma: initial value of gamma, in (0, 1).
        quantise: whether to query only images that are rounded to 8 bits. Steps of stage 2 are then made longer if
            rounding would cancel them. On large images, rounding can cancel the small steps of stage 1.
        quantise_after: whether to round the result with `round_across`, as RoBIC does.

    Returns:
        The nearest adversarial image found for each image, shape (n, C, H, W). The clean image if none was found.
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
    return round_across(model, inputs, labels, best, targets) if quantise_after else best


def round_across(model: Model, inputs: Tensor, labels: Tensor, points: Tensor, targets: Tensor | None = None) -> Tensor:
    """Round adversarial images to 8 bits such that they stay adversarial, near the clean images (Bonnet et al. 2020).

    Each component is rounded down or up to a whole grey level. The choice minimises the squared change plus a weight
    times the first-order change of the logit margin. Bisection finds the smallest weight with which the image stays
    adversarial. This needs one gradient and log2(number of components) forward passes.

    Args:
        model: maps images in [0, 1] to logits, differentiably.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: labels of the images, shape (n,).
        points: adversarial images to round, shape (n, C, H, W).
        targets: target classes, shape (n,), for targeted examples.

    Returns:
        The rounded images, shape (n, C, H, W). The clean image if no weight makes the rounded image adversarial.
    """
    asked = points.detach().requires_grad_()
    slope = torch.autograd.grad(logit_margin(model(asked), labels, targets).sum(), asked)[0].nan_to_num(0, 0, 0)
    slope = slope.where(slope != 0, 0.0)  # no negative zeros
    below, above = (255 * points).floor(), (255 * points).ceil()
    downwards, upwards = above.where(slope < 0, below) / 255, below.where(slope < 0, above) / 255  # of the margin
    weights = ((510 * inputs - below - above) / slope).nan_to_num(torch.inf).clamp(min=0)  # from which it is downwards
    ordered = torch.cat((torch.zeros_like(weights.flatten(1)[:, :1]), weights.flatten(1)), 1).sort(1).values
    low, high, best = torch.zeros_like(labels), torch.full_like(labels, ordered.shape[1] - 1), inputs.clone()
    for _ in range(ordered.shape[1].bit_length() + 1):
        middle = (low + high) // 2
        rounded = downwards.where(weights <= by_image(ordered.gather(1, middle[:, None])[:, 0]), upwards)
        hit = is_fooled(model(rounded).detach(), labels, targets)
        best = rounded.where(by_image(hit), best)
        low, high = low.where(hit, (middle + 1).minimum(high)), middle.where(hit, high)
    return best


def _first_length(margin: Tensor, gradient: Tensor, rise: list[float], step_size: float | None) -> Tensor:
    """Return the step size of stage 1 for each image: `step_size`, or, if None, the step size of RoBIC's equation 7."""
    if step_size is not None:
        return torch.full_like(margin, step_size)
    size = gradient.nan_to_num(0, 0, 0).flatten(1).norm(dim=1).clamp(min=1e-12)
    few = max(1, len(rise) // 3)
    return (margin.clamp(min=0) / size / sum(rise[1 : few + 1])).nan_to_num(0, 0, 0)


def _stage_2(inputs: Tensor, change: Tensor, upwards: Tensor, hit: Tensor, factor: float, quantise: bool) -> Tensor:
    """Return the next point of stage 2.

    If the current point is adversarial, the next point is along the boundary. Otherwise it is across the boundary.
    """
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
    """Find the factor of the tangential part with which the change, rounded to 8 bits, has the required length."""
    low, high = torch.zeros_like(wanted), torch.ones_like(wanted)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        rounded = round_to_grid((inputs + change - by_image(1 - middle) * side).clamp(0, 1)) - inputs
        short = rounded.flatten(1).norm(dim=1) <= wanted
        low, high = middle.where(short, low), high.where(short, middle)
    return low
