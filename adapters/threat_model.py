"""Threat models: a norm, a radius (one for all images or one per image), and whether attacks are targeted."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import InvalidInput, UnknownName
from .coercion import read_radius, type_error
from .defaults import NORMS, Norm

_CLOSE = 1e-6  # largest difference between equal radii
_BY_NUMBER: Mapping[Any, Norm] = {math.inf: "linf", 2: "l2", 1: "l1", 0: "l0"}  # as NumPy and torch call them


def same_radius(one: float, other: float) -> bool:
    """Whether two radii are equal up to 1e-6, so that 0.031373 is the same radius as 8/255. False for NaN."""
    return abs(one - other) < _CLOSE


def check_norm(norm: Any) -> None:
    """Raise an error unless `norm` is the name of a norm.

    Raises:
        UnknownName: if `norm` is a different string.
        WrongType: if `norm` is not a string. For a number such as 2, the message suggests the name of the norm.
    """
    if isinstance(norm, str):
        if norm not in NORMS:
            raise UnknownName("norm", norm, NORMS)
        return
    error = type_error(f"a norm of {', '.join(NORMS)}", norm)
    if type(norm) in (int, float) and norm in _BY_NUMBER:
        error.args = (f"{error}; did you mean {_BY_NUMBER[norm]!r}?",)
    raise error


@dataclass(frozen=True)
class ThreatModel:
    """What an attacker may do: how far an image may be changed, and whether a target class must be reached.

    Args:
        norm: "linf", "l2" or "l1", for pixels in [0, 1]; "l0", the number of changed components out of C x H x W; or
            "unrestricted", for changes such as rotation or blur that no norm bounds.
        epsilon: radius: largest allowed perturbation in the norm, a number or a fraction such as "8/255". None if the
            attack searches for the smallest perturbation.
        targeted: whether the attack succeeds only if an image is classified as its target class.

    Raises:
        InvalidInput: if the norm is unknown, or the radius is not allowed in this norm. The radius must be positive, at
            most 1 in linf, a whole number in l0, and None for "unrestricted".
    """

    norm: Norm
    epsilon: float | None = None
    targeted: bool = False

    if TYPE_CHECKING:  # the argument accepts more types than the attribute has

        def __init__(self, norm: Norm, epsilon: float | str | None = None, targeted: bool = False) -> None: ...

    def __post_init__(self) -> None:
        if self.norm not in NORMS:
            raise InvalidInput(f"expected a norm of {', '.join(NORMS)}, got {self.norm!r}")
        object.__setattr__(self, "epsilon", read_radius(self.epsilon))
        if self.epsilon is None:
            return
        if self.norm == "unrestricted":
            raise InvalidInput(f"expected no epsilon for an unrestricted threat model, got {self.epsilon}")
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise InvalidInput(f"expected epsilon > 0, got {self.epsilon}")
        if self.norm == "linf" and self.epsilon > 1:
            raise InvalidInput(
                f"expected linf epsilon in (0, 1], got {self.epsilon}; images are in [0, 1], so use 8/255"
            )
        if self.norm == "l0" and (self.epsilon < 1 or self.epsilon != int(self.epsilon)):
            raise InvalidInput(f"expected l0 epsilon as a number of components, 1, 2, ..., got {self.epsilon}")

    def check_radius(self, components: int) -> None:
        """Raise InvalidInput if the radius is too large for images with this number of components.

        The limit is the largest possible distance between two images in [0, 1].
        """
        largest = {"linf": 1.0, "l2": math.sqrt(components), "l1": components, "l0": components}.get(
            self.norm, math.inf
        )
        if self.epsilon is not None and self.epsilon > largest:
            raise InvalidInput(
                f"expected {self.norm} epsilon <= {largest:g} for images of {components} components, got {self.epsilon}"
            )

    @property
    def radius(self) -> Any:
        """Radius to pass to a library: epsilon. If each image has its own radius, a tensor with one value per image."""
        return self.epsilon

    @property
    def per_image_step_radius(self) -> Tensor | None:
        """Radii in a shape by which steps on images can be multiplied, (n, 1, 1, 1). None if there is one radius."""
        return None

    def for_images(self, rows: Tensor, device: torch.device | None = None) -> "ThreatModel":
        """Return the threat model for the images with indices `rows`.

        The threat model is unchanged unless each image has its own radius.
        """
        del rows, device
        return self

    @property
    def exact_radius(self) -> Any:
        """The radius in double precision: epsilon. If each image has its own radius, shape (n,), float64."""
        return self.epsilon

    def with_radii(self, radii: Tensor, labels: Tensor) -> "ThreatModel":
        """Return the threat model with a separate radius for each image.

        Args:
            radii: radius of each image, shape (N,), above 0 and at most epsilon.
            labels: labels of the images, shape (N,). The radii are moved to their device.

        Raises:
            InvalidInput: if the number of radii is not N, or a radius is out of range.
        """
        if radii.shape != labels.shape or not bool(((radii > 0) & (radii <= (self.epsilon or 0))).all()):
            got = f"{tuple(radii.shape)} from {float(radii.min()):g} to {float(radii.max()):g}"
            raise InvalidInput(f"expected {len(labels)} radii above 0 and at most {self.epsilon}, got {got}")
        return _PerImageThreatModel(**vars(self), radii=radii.detach().to(labels.device, torch.double))


@dataclass(frozen=True, eq=False, kw_only=True)
class _PerImageThreatModel(ThreatModel):
    """A threat model with a separate radius for each image, at most epsilon, shape (n,), float64."""

    radii: Tensor

    @property
    def radius(self) -> Tensor:
        """The radii in float32. The shape is (n,), or in linf a shape that broadcasts over images."""
        return self.per_image_step_radius if self.norm == "linf" else self.radii.float()

    @property
    def per_image_step_radius(self) -> Tensor:
        return _to_multiply(self.radii)

    @property
    def exact_radius(self) -> Tensor:
        return self.radii

    def for_images(self, rows: Tensor, device: torch.device | None = None) -> ThreatModel:
        return replace(self, radii=self.radii[rows].to(device))


def select_kwargs(kwargs: Mapping[str, Any], rows: Tensor, device: torch.device) -> dict[str, Any]:
    """Return the keyword arguments for a call on the images with indices `rows`.

    An argument with one value per image is restricted to these images, and reshaped so that it broadcasts over images.
    Other arguments are unchanged.
    """
    each = {word: values[rows.to(values.device)] for word, values in kwargs.items() if isinstance(values, Tensor)}
    return {**kwargs, **{word: _to_multiply(values.detach().to(device)) for word, values in each.items()}}


def _to_multiply(values: Tensor) -> Tensor:
    return values.float() if values.dim() > 1 else values.float().view(-1, 1, 1, 1)
