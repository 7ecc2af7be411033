"""The only judge: what a library returns is measured here, and no library's own success flag is ever believed."""

from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from .attack import Distances, Norm, ThreatModel
from .radii import OwnRadii, radius_of

BOX_TOLERANCE = 1e-6
RADIUS_TOLERANCE = 1e-4  # relative, plus 1e-6 per unit: float32 sums over 150 000 components

Radius = TypeVar("Radius", float, Tensor)


class Verdict(NamedTuple):
    """Returned images after clipping, and the rules that each broke before it (empty: none)."""

    adv_inputs: Tensor
    violations: tuple[tuple[str, ...], ...]


def fooled(logits: Tensor, labels: Tensor, targets: Tensor | None = None) -> Tensor:
    """Whether each row counts as a success, shape (N,) bool: not the label, or the target if there is one.

    A row with a NaN is never a success.
    """
    predicted = logits.argmax(1)
    hit = predicted != labels if targets is None else predicted == targets
    return hit & torch.isfinite(logits).all(1)


def norm_of(delta: Tensor, norm: Norm) -> Tensor:
    """Norm of each change, shape (N,), in its type; l0 counts components; "unrestricted" is measured in l2."""
    flat = delta.flatten(1)
    if norm == "linf":
        return flat.abs().amax(1)
    if norm == "l1":
        return flat.abs().sum(1)
    if norm == "l0":
        return (flat != 0).sum(1).to(flat.dtype)
    return torch.linalg.vector_norm(flat, dim=1)


def distances_of(inputs: Tensor, adv_inputs: Tensor) -> Distances:
    """All four distances of each pair, computed in float64 and returned as float64, shape (N,) each."""
    delta = adv_inputs.double() - inputs.double()
    return Distances(*(norm_of(delta, norm) for norm in ("l0", "l1", "l2", "linf")))


def allowed_radius(threat_model: ThreatModel) -> float:
    """Radius up to which a change counts as inside the ball: epsilon and the stated rounding tolerance."""
    return float("inf") if threat_model.epsilon is None else _with_tolerance(threat_model.epsilon, threat_model.norm)


def allowed_radii(threat_model: ThreatModel) -> float | Tensor:
    """`allowed_radius`; where every image has a radius of its own, of each, shape (n,)."""
    if isinstance(threat_model, OwnRadii):
        return _with_tolerance(threat_model.radii, threat_model.norm)
    return allowed_radius(threat_model)


def _with_tolerance(radius: Radius, norm: Norm) -> Radius:
    if norm == "l0":
        return radius
    return radius * (1 + (0.0 if norm == "linf" else RADIUS_TOLERANCE)) + 1e-6


def inside_rules(inputs: Tensor, adv_inputs: Tensor, threat_model: ThreatModel) -> Tensor:
    """Whether each image is finite, inside [0, 1] and inside the ball, up to the tolerances, shape (N,) bool."""
    flat = adv_inputs.flatten(1)
    in_box = (flat >= -BOX_TOLERANCE).all(1) & (flat <= 1 + BOX_TOLERANCE).all(1)
    return in_box & (norm_of(adv_inputs - inputs, threat_model.norm) <= allowed_radii(threat_model))


def judge_images(
    inputs: Tensor, returned: Tensor, threat_model: ThreatModel, *, fixed_budget: bool, failure: str
) -> Verdict:
    """Check what a library returned and bring it back inside the rules.

    Kinds of violation: "nan", "out-of-bounds", "out-of-ball" (only where the attack is bound to the ball), "black"
    (an all-zero image in place of one that was not), "unchanged" (the clean image, from an attack that does not
    return it where it fails).

    Args:
        inputs: clean images, shape (N, C, H, W).
        returned: what came back, same shape.
        threat_model: the rules.
        fixed_budget: the attack promises to stay inside the ball.
        failure: what the library is known to return where it fails: "input" or "last".

    Returns:
        The images clipped to the ball (linf: clamped; l2 and l1: rescaled; l0: the largest changes kept) and to
        [0, 1], an image with a NaN replaced by the clean one; and each image's violations.
    """
    finite = torch.isfinite(returned).flatten(1).all(1)
    images = returned.where(finite.view(-1, 1, 1, 1), inputs)
    flat = images.flatten(1)
    bounded = fixed_budget and threat_model.epsilon is not None
    far = norm_of(images.double() - inputs.double(), threat_model.norm) > allowed_radii(threat_model)
    broken = {
        "nan": ~finite,
        "out-of-bounds": (flat.amin(1) < -BOX_TOLERANCE) | (flat.amax(1) > 1 + BOX_TOLERANCE),
        "out-of-ball": far & bounded,
        "black": (flat == 0).all(1) & (inputs != 0).flatten(1).any(1),
        "unchanged": (flat == inputs.flatten(1)).all(1) & finite & (failure != "input"),
    }
    if bounded:
        images = project(inputs, images, threat_model)
    kinds = {kind: flags.tolist() for kind, flags in broken.items()}
    violations = tuple(tuple(kind for kind, flags in kinds.items() if flags[i]) for i in range(len(inputs)))
    return Verdict(images.clamp(0, 1), violations)


def project(inputs: Tensor, images: Tensor, threat_model: ThreatModel) -> Tensor:
    """The images moved onto the ball where they are outside of it by more than rounding; others bit by bit the same."""
    delta, epsilon = images - inputs, radius_of(threat_model)
    if epsilon is None or threat_model.norm == "unrestricted":
        return images
    size = norm_of(delta.double(), threat_model.norm)
    outside = (size > allowed_radii(threat_model)).view(-1, 1, 1, 1)
    if not outside.any():
        return images
    if threat_model.norm == "linf":
        bound = torch.as_tensor(epsilon).to(delta)
        shrunk = delta.clamp(-bound, bound)
    elif threat_model.norm == "l0":
        flat = delta.flatten(1)
        kept = flat.abs().topk(int(epsilon), dim=1).indices
        shrunk = torch.zeros_like(flat).scatter(1, kept, flat.gather(1, kept)).view_as(delta)
    else:
        shrunk = delta * (epsilon / size.clamp(min=epsilon)).to(delta.dtype).view(-1, 1, 1, 1)
    return (inputs + shrunk).where(outside, images)


def quantise(images: Tensor) -> Tensor:
    """The images on the 8-bit grid: floor(255 x + 1/2) / 255, in the same type."""
    return (images * 255 + 0.5).floor() / 255
