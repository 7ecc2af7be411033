"""GD-UAP: computes one perturbation for all images from the model alone."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...threat_model import ThreatModel

_GREY = 0.5  # the image to which the perturbation is added during the fit
_HALVED_AT = 0.5  # proportion of saturated components above which a settled perturbation is halved
_SETTLED = 1e-5  # change of that proportion in a step


def gd_uap(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,  # noqa: ARG001 - every attack is called so
    *,
    epsilon: float,
    steps: int = 1000,
    learning_rate: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Compute a perturbation with `learn_perturbation`, and return images (n, C, H, W) in [0, 1] with it."""
    words = {"epsilon": epsilon, "steps": steps, "learning_rate": learning_rate, "generator": generator}
    return (inputs + learn_perturbation(model, inputs[:1], **words)).clamp(0, 1)


def fit_gd_uap(
    _: Callable[..., Tensor],
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,  # noqa: ARG001 - as every attack that is fitted
    threat_model: ThreatModel,
    **words: Any,
) -> Mapping[str, Tensor]:
    """Compute the perturbation, and return {"perturbation": perturbation}. Only the shape of `inputs` is used."""
    assert threat_model.epsilon is not None
    return {"perturbation": learn_perturbation(model, inputs[:1], epsilon=threat_model.epsilon, **words)}


def learn_perturbation(
    model: nn.Module,
    like: Tensor,
    *,
    epsilon: float,
    steps: int = 1000,
    learning_rate: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Compute one perturbation for all images without data, by maximising the activation of every convolution.

    The method is that of Mopuri et al. 2018. The perturbation is added to a grey image, and Adam maximises the sum over
    the convolutions of log(|output|^2 / 2). The perturbation is clipped to the radius after each step. If more than
    half of its components are at the radius, and this proportion no longer changes, the perturbation is halved (section
    III-C of the paper).

    There are two differences from the paper. The paper returns the perturbation that fools most images of a second data
    set, and this function returns the perturbation with the largest objective. If the model has no convolutions, this
    function uses its linear layers.

    Args:
        model: maps images in [0, 1] to logits, differentiably, and has its layers as submodules.
        like: an image, shape (1, C, H, W). Only its shape, dtype and device are used.
        epsilon: radius in linf.
        steps: number of steps of Adam. A step costs one forward and one backward pass of one image.
        learning_rate: learning rate of Adam. None for epsilon / 100. This corresponds to the authors' value of 0.1 for
            images in [0, 255] and a radius of 10.
        generator: random generator for the uniform start.

    Returns:
        The perturbation, shape (C, H, W).
    """
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    layers = layers or [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    start = 2 * torch.rand(like.shape, generator=generator, device=like.device) - 1
    point = (epsilon * start).to(like).requires_grad_()
    optimiser = torch.optim.Adam([point], lr=epsilon / 100 if learning_rate is None else learning_rate)
    best, highest, before = point.detach().clone(), -torch.inf, 0.0
    for _ in range(steps):
        objective = _answer(model, layers, _GREY + point)
        if objective is None or not objective.requires_grad:  # its query budget is exhausted
            break
        if objective.item() > highest:
            best, highest = point.detach().clone(), objective.item()
        optimiser.zero_grad()
        (-objective).backward()
        optimiser.step()
        with torch.no_grad():
            point.clamp_(-epsilon, epsilon)
            saturated = float((point.abs() >= epsilon).float().mean())
            if saturated > _HALVED_AT and abs(saturated - before) < _SETTLED:
                point /= 2
            before = saturated
    return best[0]


def _answer(model: nn.Module, layers: Sequence[nn.Module], image: Tensor) -> Tensor | None:
    """Return the objective: the sum over the layers of log(|output|^2 / 2). None if the model has not run."""
    outputs: list[Tensor] = []
    handles = [layer.register_forward_hook(lambda *seen: outputs.append(seen[2])) for layer in layers]
    try:
        logits = model(image)
    finally:
        for handle in handles:
            handle.remove()
    if not outputs:
        return None
    squares = torch.stack([output.float().square().sum() for output in outputs])
    # The logits are included so that the backward pass is counted like that of every attack.
    return (squares / 2).clamp(min=torch.finfo(squares.dtype).tiny).log().sum() + 0 * logits.sum()
