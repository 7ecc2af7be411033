"""A radius, and a step size, for each image of a run instead of one for all."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidInput, Unsupported
from .attack import Implementation, OwnRadii, ThreatModel
from .catalogue import check_support, takes_radii


def check_settings(
    row: Implementation, threat_model: ThreatModel, parameters: Mapping[str, Any], radii: Tensor | None
) -> dict[str, Any]:
    """The parameters in their own types, as `check_support` gives them; the `step_size` may be one for each radius.

    Raises:
        Unsupported: if the row cannot do what is asked, or takes no radius for each image.
        UnknownName: if a parameter is not in the vocabulary.
        InvalidInput: if a parameter has a wrong value, or there are not as many step sizes as radii.
    """
    if radii is not None and not (isinstance(radii, Tensor) and radii.ndim == 1 and len(radii)):
        got = f"a tensor of shape {tuple(radii.shape)}" if isinstance(radii, Tensor) else type(radii).__name__
        raise InvalidInput(f"expected radii as a tensor, one for each image, got {got}")
    steps = parameters.get("step_size")
    if isinstance(steps, Tensor):
        if radii is None:
            raise InvalidInput(f"expected one step_size for all images, as there are no radii, got {steps.numel()}")
        if steps.shape != radii.shape:
            raise InvalidInput(f"expected as many radii as step_size, got {len(radii)} and {steps.numel()}")
        smallest = {**parameters, "step_size": float(steps.min())}
        settings = {**check_support(row, threat_model, smallest), "step_size": steps}
    else:
        settings = check_support(row, threat_model, parameters)
    if radii is not None and not takes_radii(row, threat_model.norm, settings):
        raise Unsupported(f"{row.name} does not take a radius for each image here: expected one epsilon, got radii")
    return settings


def own_radii(threat_model: ThreatModel, radii: Tensor, labels: Tensor) -> OwnRadii:
    """The threat model with these radii; InvalidInput unless each image has one above 0 and at most epsilon."""
    if radii.shape != labels.shape or not bool(((radii > 0) & (radii <= (threat_model.epsilon or 0))).all()):
        got = f"{tuple(radii.shape)} from {float(radii.min()):g} to {float(radii.max()):g}"
        raise InvalidInput(f"expected {len(labels)} radii above 0 and at most {threat_model.epsilon}, got {got}")
    return OwnRadii(**vars(threat_model), radii=radii.detach().to(labels.device, torch.double))


def pick_words(kwargs: Mapping[str, Any], rows: Tensor, device: torch.device) -> dict[str, Any]:
    """The arguments of a call on `rows`; those with a value for each image shaped to be multiplied with images."""
    own = {word: values[rows.to(values.device)] for word, values in kwargs.items() if isinstance(values, Tensor)}
    return {**kwargs, **{word: values.to(device, torch.float).view(-1, 1, 1, 1) for word, values in own.items()}}
