"""A radius, and a step size, for each image of a run instead of one for all."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidInput
from .attack import ThreatModel


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnRadii(ThreatModel):
    """A threat model in which every image of a call has a radius of its own, at most epsilon; shape (n,), float64.

    Rows that say so in `Implementation.own_radii` get them as a tensor in place of a number.
    """

    radii: Tensor

    @property
    def radius(self) -> Tensor:
        """In float32 and shaped to bound the components of each image (linf) or its norm (any other)."""
        return self.reach if self.norm == "linf" else self.radii.float()

    @property
    def reach(self) -> Tensor:
        """The radii as lengths of a step: float32, shape (n, 1, 1, 1)."""
        return _to_multiply(self.radii)


def radius_of(threat_model: ThreatModel) -> Any:
    """What a library is given as its radius: epsilon, or a tensor of one for each image."""
    return threat_model.radius if isinstance(threat_model, OwnRadii) else threat_model.epsilon


def own_radii(threat_model: ThreatModel, radii: Tensor, labels: Tensor) -> OwnRadii:
    """The threat model with these radii; InvalidInput unless each image has one above 0 and at most epsilon."""
    if radii.shape != labels.shape or not bool(((radii > 0) & (radii <= (threat_model.epsilon or 0))).all()):
        got = f"{tuple(radii.shape)} from {float(radii.min()):g} to {float(radii.max()):g}"
        raise InvalidInput(f"expected {len(labels)} radii above 0 and at most {threat_model.epsilon}, got {got}")
    return OwnRadii(**vars(threat_model), radii=radii.detach().to(labels.device, torch.double))


def pick_rules(threat_model: ThreatModel, rows: Tensor, device: torch.device | None = None) -> ThreatModel:
    """The threat model of the images at `rows`, its radii (if it has any) on a device."""
    if isinstance(threat_model, OwnRadii):
        return replace(threat_model, radii=threat_model.radii[rows].to(device))
    return threat_model


def pick_words(kwargs: Mapping[str, Any], rows: Tensor, device: torch.device) -> dict[str, Any]:
    """The arguments of a call on `rows`; those with a value for each image shaped to be multiplied with images."""
    own = {word: values[rows.to(values.device)] for word, values in kwargs.items() if isinstance(values, Tensor)}
    return {**kwargs, **{word: _to_multiply(values.detach().to(device)) for word, values in own.items()}}


def _to_multiply(values: Tensor) -> Tensor:
    return values.float().view(-1, 1, 1, 1)
