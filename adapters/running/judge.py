"""The only judge: what a library returns is measured here, and no library's success flag is ever believed."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ..result import Distances, allowed_radii
from ..threat_model import Norm, ThreatModel

RULES = 2  # version of the rules below: part of a cell's key, raised whenever the same images would be judged otherwise

# Why a result is invalid, by the kind that `AttackResult.violations` and the records have for it.
KINDS: Mapping[str, str] = {
    "nan": "the library returned NaN or infinity",
    "out-of-bounds": "the returned image has pixels outside [0, 1]",
    "out-of-ball": "the returned image lies outside the ball that the attack is bound to",
    "black": "a black image was returned in place of one that is not",
    "unchanged": "the clean image came back from an attack that does not do so where it fails, or that tried no other",
    "barely-moved": "not fooled, and too little was changed for an image of 8 bits to show it or the radius to be used",
    "another-image": "what came back is an example of another image of the same run, or that image itself",
    "nan-query": "not fooled, and the library asked about an image or for the gradient of a loss that is not finite",
    "nan-logits": "the model's logits are not finite for it, or for a finite image in [0, 1] that the attack tried",
    "nan-gradient": "not fooled, and the model gave the attack a gradient that is not finite",
    "no-gradient": "not fooled, and most gradients that the attack was given are zero",
    "no-signal": "not fooled, and the scores that the attack was given never changed",
    "unstable": "the model predicts the same image now so, now otherwise",
    "model-changed": "the library changed the model meanwhile (it was restored)",
    "crashed": "the library crashed",
    "model-crashed": "the model raised an error when the library asked it",
    "surrogate": "not fooled, and the surrogate gave no finite logits or gradient",
    "no-start": "no starting point was found that fools the model",
}
BOX_TOLERANCE = 1e-6
UNCHANGED = 1e-6  # largest change of a pixel that is rounding
BLACK = 0.5 / 255  # largest pixel of an image that is black on 8 bits
LITTLE = 0.1  # of the radius: a change that cannot be seen and stays below this share of it has tried nothing


class JudgedImages(NamedTuple):
    """Returned images after clipping, and the rules that each broke before it (empty: none)."""

    adv_inputs: Tensor
    violations: tuple[tuple[str, ...], ...]


def perturbation_norm(delta: Tensor, norm: Norm) -> Tensor:
    """Norm of each change, shape (N,), in its type; l0 counts components; "unrestricted" is measured in l2."""
    flat = delta.flatten(1)
    if norm == "linf":
        return flat.abs().amax(1)
    if norm == "l1":
        return flat.abs().sum(1)
    if norm == "l0":
        return (flat != 0).sum(1).to(flat.dtype)
    return torch.linalg.vector_norm(flat, dim=1)


def perturbation_distances(inputs: Tensor, adv_inputs: Tensor) -> Distances:
    """All four distances of each pair, computed in float64 and returned as float64, shape (N,) each."""
    delta = adv_inputs.double() - inputs.double()
    return Distances(*(perturbation_norm(delta, norm) for norm in ("l0", "l1", "l2", "linf")))


def projection_of(images: Tensor) -> Tensor:
    """One number of each image that tells nearly all images apart, float64, shape (N,).

    Its inner product with signs that are drawn once for a number of components, over the root of that number: where no
    component of two images differs by more than d, these differ by about d.
    """
    flat = images.double().flatten(1)
    drawn = torch.randint(2, (flat.shape[1],), generator=torch.Generator().manual_seed(0), device="cpu")
    return flat @ (2 * drawn.double() - 1).to(flat) / flat.shape[1] ** 0.5


def within_threat_model(inputs: Tensor, adv_inputs: Tensor, threat_model: ThreatModel) -> Tensor:
    """Whether each image is finite, inside [0, 1] and inside the ball, up to the tolerances, shape (N,) bool."""
    flat = adv_inputs.flatten(1)
    in_box = (flat >= -BOX_TOLERANCE).all(1) & (flat <= 1 + BOX_TOLERANCE).all(1)
    return in_box & (perturbation_norm(adv_inputs - inputs, threat_model.norm) <= allowed_radii(threat_model))


def judge_images(
    inputs: Tensor, returned: Tensor, threat_model: ThreatModel, *, bound: bool, may_stay: Tensor
) -> JudgedImages:
    """Check what a library returned and bring it back inside the rules, whatever the model makes of it.

    Kinds of violation, see `KINDS`: "nan", "out-of-bounds", "out-of-ball", "black", "unchanged".

    Args:
        inputs: clean images, shape (N, C, H, W).
        returned: what came back, same shape.
        threat_model: the rules.
        bound: the attack promises to stay inside the ball.
        may_stay: the images for which the clean image is an honest answer, shape (N,) bool: the library returns it
            where it fails, or the image ran out of queries.

    Returns:
        The images clipped to the ball (linf: clamped; l2 and l1: rescaled; l0: the largest changes kept) and to
        [0, 1], an image with a NaN replaced by the clean one; and each image's violations.
    """
    finite = torch.isfinite(returned).flatten(1).all(1)
    images = returned.where(finite.view(-1, 1, 1, 1), inputs)
    flat = images.flatten(1)
    bound = bound and threat_model.epsilon is not None
    change = images.double() - inputs.double()
    far = perturbation_norm(change, threat_model.norm) > allowed_radii(threat_model)
    broken = {
        "nan": ~finite,
        "out-of-bounds": (flat.amin(1) < -BOX_TOLERANCE) | (flat.amax(1) > 1 + BOX_TOLERANCE),
        "out-of-ball": far & bound,
        "black": (flat.amax(1) <= BLACK) & (inputs.flatten(1).amax(1) > BLACK),
        "unchanged": (perturbation_norm(change, "linf") <= UNCHANGED) & finite & ~may_stay,
    }
    if bound:
        images = project(inputs, images, threat_model)
    kinds = {kind: flags.tolist() for kind, flags in broken.items()}
    violations = tuple(tuple(kind for kind, flags in kinds.items() if flags[i]) for i in range(len(inputs)))
    return JudgedImages(images.clamp(0, 1), violations)


def judge_outcomes(
    inputs: Tensor, adv_inputs: Tensor, hit: Tensor, threat_model: ThreatModel, *, may_stay: Tensor
) -> dict[str, Tensor]:
    """Violations that show only once the examples are scored, by kind; shape (N,) bool each.

    "unchanged" where the model is fooled by what differs from the clean image in rounding only; "barely-moved" where
    it is not fooled, the change is lost on 8 bits and uses less than a tenth of the radius, if there is one.

    Args:
        inputs: clean images, shape (N, C, H, W).
        adv_inputs: examples inside the rules, same shape.
        hit: those that fool the model, shape (N,) bool.
        threat_model: the rules.
        may_stay: as for `judge_images`: such an image may be returned as good as unchanged.
    """
    change = adv_inputs.double() - inputs.double()
    unchanged = perturbation_norm(change, "linf") <= UNCHANGED
    size, allowed = perturbation_norm(change, threat_model.norm), allowed_radii(threat_model)
    invisible = (quantise(adv_inputs) == quantise(inputs)).flatten(1).all(1)
    return {"unchanged": hit & unchanged, "barely-moved": ~hit & invisible & (size <= LITTLE * allowed) & ~may_stay}


def belongs_to_other_image(inputs: Tensor, adv_inputs: Tensor) -> Tensor:
    """Which examples belong to another image of the run, shape (N,) bool.

    Less than half as far (l2) from another clean image as from that of its row, and at least as near to it as what came
    back for that one: so swapped and repeated examples and the other images themselves are noticed, while an example
    that is merely far from its clean image is not. Compares every image with every other: one matrix product.
    """
    images, examples = inputs.flatten(1), adv_inputs.flatten(1)
    nearest = (images.square().sum(1) - 2 * examples @ images.T).argmin(1)
    flagged = torch.zeros(len(images), dtype=torch.bool, device=inputs.device)
    for i in (nearest != torch.arange(len(images), device=inputs.device)).nonzero()[:, 0].tolist():
        j = int(nearest[i])
        to_other, to_clean, of_other = (
            float((examples[a].double() - images[b].double()).norm()) for a, b in ((i, j), (i, i), (j, j))
        )
        flagged[i] = to_other < to_clean / 2 and to_other <= of_other + UNCHANGED
    return flagged


def project(inputs: Tensor, images: Tensor, threat_model: ThreatModel) -> Tensor:
    """The images moved onto the ball where they are outside of it by more than rounding; others bit by bit the same."""
    delta, epsilon = images - inputs, threat_model.radius
    if epsilon is None or threat_model.norm == "unrestricted":
        return images
    size = perturbation_norm(delta.double(), threat_model.norm)
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
