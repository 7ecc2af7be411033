"""Inner maximisation of adversarial training: gradient ascent on the loss, within the radius and in [0, 1]."""

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

Start = Literal["uniform", "gaussian", "none"]
STARTS: tuple[Start, ...] = get_args(Start)
_GAUSSIAN = 0.001  # standard deviation, as in the code of TRADES and MART
_SMALL = 1e-12


def initial_perturbation(inputs: Tensor, norm: str, epsilon: float, start: Start) -> Tensor:
    """Return the images at which the ascent starts, shape (N, C, H, W), in [0, 1].

    Args:
        inputs: clean images in [0, 1], shape (N, C, H, W).
        norm: norm of the ball, "linf" or "l2".
        epsilon: radius of the ball.
        start: rule for the initial point. "uniform" is a random point in the ball around the image (Madry et al. 2018).
            "gaussian" is the image with Gaussian noise of standard deviation 0.001 (Zhang et al. 2019). "none" is the
            clean image.
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
    """Return images after one step of steepest ascent, projected to the ball around `inputs` and then to [0, 1]."""
    if norm == "linf":
        moved = adv_inputs + size * gradient.sign()
        return torch.min(torch.max(moved, inputs - epsilon), inputs + epsilon).clamp(0, 1)
    return (inputs + step_change(adv_inputs - inputs, gradient, norm, epsilon, size)).clamp(0, 1)


def step_change(change: Tensor, gradient: Tensor, norm: str, epsilon: float, size: float) -> Tensor:
    """Return perturbations after one step of steepest ascent, projected to the ball around 0."""
    if norm == "linf":
        return (change + size * gradient.sign()).clamp(-epsilon, epsilon)
    moved = change + size * _unit(gradient)
    length = moved.flatten(1).norm(dim=1).clamp_min(_SMALL).view(-1, 1, 1, 1)
    return moved * (epsilon / length).clamp_max(1)


def ascend(
    inputs: Tensor, adv_inputs: Tensor, objective: Callable[[Tensor], Tensor], rules: tuple[str, float, int, float]
) -> Tensor:
    """Maximise an objective by steepest ascent within a ball around each image.

    Args:
        inputs: clean images in [0, 1], shape (N, C, H, W), which are the centres of the balls.
        adv_inputs: images at which the ascent starts.
        objective: function that returns the number to maximise, from images of shape (N, C, H, W).
        rules: norm and radius of the ball, number of steps, and step size.

    Returns:
        The images after the last step, without gradients.
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
