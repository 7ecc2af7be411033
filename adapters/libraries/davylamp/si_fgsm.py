"""SI-FGSM: momentum steps along the mean gradient of copies of the image with scaled pixel values."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from .queries import Model


def si_fgsm(  # noqa: PLR0913 - the parameters of the attack, by keyword
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    *,
    epsilon: float | Tensor,
    targets: Tensor | None = None,
    steps: int = 10,
    step_size: float | Tensor | None = None,
    decay: float = 1.0,
    scales: int = 5,
) -> Tensor:
    """Run SI-FGSM, the scale-invariant method of Lin et al. (2020), with momentum but without Nesterov's step.

    In each step, the gradients of the cross-entropy at x, x / 2, x / 4, ... are averaged.

    Args:
        model: maps images in [0, 1] to logits, differentiably.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: true classes, shape (n,).
        epsilon: radius in linf, or one radius per image, shape (n, 1, 1, 1).
        targets: target classes, shape (n,), for a targeted attack.
        steps: number of steps.
        step_size: linf length of a step. None for epsilon / steps, as in the paper.
        decay: weight of the accumulated gradient.
        scales: number of scaled copies. In each step, a copy costs a forward and a backward pass.

    Returns:
        The last point of each image, shape (n, C, H, W), within the radius and in [0, 1].
    """
    length = epsilon / steps if step_size is None else step_size
    goal, sign = (labels, 1) if targets is None else (targets, -1)
    point, momentum = inputs.clone(), torch.zeros_like(inputs)
    for _ in range(steps):
        total = torch.zeros_like(inputs)
        for scale in range(scales):
            asked = point.detach().requires_grad_()
            loss = cross_entropy(model(asked / 2**scale), goal, reduction="sum")
            total += sign * torch.autograd.grad(loss, asked)[0]
        size = total.abs().flatten(1).mean(1)[:, None, None, None]
        momentum = decay * momentum + total / size.where(size > 0, 1)  # a zero gradient leaves it as it is
        point = point + length * momentum.sign()
        point = torch.minimum(torch.maximum(point, inputs - epsilon), inputs + epsilon).clamp(0, 1)
    return point
