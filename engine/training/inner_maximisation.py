"""The inner problem of adversarial training: a few steps up a loss, inside the ball and [0, 1]."""

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

Start = Literal["uniform", "gaussian", "none"]
STARTS: tuple[Start, ...] = get_args(Start)
_GAUSSIAN = 0.001  # standard deviation; as the authors of TRADES and MART begin
_SMALL = 1e-12


def initial_perturbation(inputs: Tensor, norm: str, epsilon: float, start: Start) -> Tensor:
    """Where the ascent begins: shape (N, C, H, W), inside [0, 1].

    Args:
        inputs: clean images in [0, 1].
        norm: "linf" or "l2".
        epsilon: radius of the ball.
        start: "uniform": a random point of the ball (Madry et al. 2018); "gaussian": noise of 0.001 (Zhang et al.
            2019); "none": the image.
    """
    if start == "none":
        return inputs.clone()
    if start == "gaussian":
        return (inputs + _GAUSSIAN * torch.randn_like(inputs)).clamp(0, 1)
    if norm == "linf":
        return (inputs + epsilon * (2 * torch.rand_like(inputs) - 1)).clamp(0, 1)
    direction = _unit(torch.randn_like(inputs))
    share = torch.rand(len(inputs), 1, 1, 1, device=inputs.device) ** (1 / inputs[0].numel())
    return (inputs + epsilon * share * direction).clamp(0, 1)


def gradient_step(
    adv_inputs: Tensor, gradient: Tensor, inputs: Tensor, norm: str, epsilon: float, size: float
) -> Tensor:
    """One step along a gradient, steepest in the norm, projected to the ball and then to [0, 1]."""
    if norm == "linf":
        moved = adv_inputs + size * gradient.sign()
        return torch.min(torch.max(moved, inputs - epsilon), inputs + epsilon).clamp(0, 1)
    return (inputs + step_change(adv_inputs - inputs, gradient, norm, epsilon, size)).clamp(0, 1)


def step_change(change: Tensor, gradient: Tensor, norm: str, epsilon: float, size: float) -> Tensor:
    """A step of a perturbation, steepest in the norm, projected to the ball around 0."""
    if norm == "linf":
        return (change + size * gradient.sign()).clamp(-epsilon, epsilon)
    moved = change + size * _unit(gradient)
    length = moved.flatten(1).norm(dim=1).clamp_min(_SMALL).view(-1, 1, 1, 1)
    return moved * (epsilon / length).clamp_max(1)


def ascend(
    inputs: Tensor, adv_inputs: Tensor, objective: Callable[[Tensor], Tensor], rules: tuple[str, float, int, float]
) -> Tensor:
    """Steps up an objective.

    Args:
        inputs: clean images in [0, 1], shape (N, C, H, W).
        adv_inputs: where to begin.
        objective: images -> a number to be made large.
        rules: norm, epsilon, steps, step size.

    Returns:
        The last iterate, without gradients.
    """
    norm, epsilon, steps, size = rules
    for _ in range(steps):
        adv_inputs = adv_inputs.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(objective(adv_inputs), adv_inputs)
        adv_inputs = gradient_step(adv_inputs.detach(), gradient, inputs, norm, epsilon, size)
    return adv_inputs.detach()


def _unit(directions: Tensor) -> Tensor:
    lengths = directions.flatten(1).norm(dim=1).clamp_min(_SMALL)
    return directions / lengths.view(-1, 1, 1, 1)
