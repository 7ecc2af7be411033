"""The judge: the code that checks and measures the images that a library returns.

It never uses a library's success flag.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ..result import Distances, allowed_radii
from ..threat_model import Norm, ThreatModel

RULES = (
    2  # version of the rules below: part of a run's key, raised whenever the same images would be judged differently
)

# Why a result is invalid, by the kind used in `AttackResult.violations` and in records.
KINDS: Mapping[str, str] = {
    "nan": "the library returned NaN or infinity",
    "out-of-bounds": "the returned image has pixels outside [0, 1]",
    "out-of-ball": "the returned image is outside the ball, although the attack should stay inside",
    "black": "a black image was returned for an image that is not black",
    "unchanged": "the attack returned the clean image although it returns a different image on failure, or it queried "
    "only the clean image",
    "barely-moved": "not fooled, and the change is invisible at 8 bits and far smaller than the radius",
    "another-image": "the returned image belongs to a different image of the run",
    "nan-query": "not fooled, and the library queried a non-finite image or differentiated a non-finite loss",
    "nan-logits": "the model's logits are not finite for the returned image, or for a valid image that was queried",
    "nan-gradient": "not fooled, and the model gave the attack a gradient that is not finite",
    "no-gradient": "not fooled, and most gradients that the attack received are zero",
    "no-signal": "not fooled, and the scores that the attack received never changed",
    "unstable": "the model's prediction for this image changes between calls",
    "model-changed": "the library modified the model during the attack (davylamp restored it)",
    "crashed": "the library crashed",
    "model-crashed": "the model raised an error when the library called it",
    "surrogate": "not fooled, and the surrogate gave no finite logits or gradient",
    "no-start": "no starting point was found that fools the model",
}
BOX_TOLERANCE = 1e-6
UNCHANGED = 1e-6  # largest change of a pixel that is rounding
BLACK = 0.5 / 255  # largest pixel of an image that is black on 8 bits
LITTLE = 0.1  # of the radius: an invisible change below this proportion of it is no serious attempt


class JudgedImages(NamedTuple):
    """Returned images after clipping, and the reasons why each was invalid before clipping.

    An image without reasons was valid.
    """

    adv_inputs: Tensor
    violations: tuple[tuple[str, ...], ...]


def perturbation_norm(delta: Tensor, norm: Norm) -> Tensor:
    """Return the norm of changes of images, shape (N,), in the dtype of the changes.

    l0 counts changed components. For "unrestricted", the norm is l2.
    """
    flat = delta.flatten(1)
    if norm == "linf":
        return flat.abs().amax(1)
    if norm == "l1":
        return flat.abs().sum(1)
    if norm == "l0":
        return (flat != 0).sum(1).to(flat.dtype)
    return torch.linalg.vector_norm(flat, dim=1)


def perturbation_distances(inputs: Tensor, adv_inputs: Tensor) -> Distances:
    """Return all four distances between clean and adversarial images, in float64, shape (N,) each."""
    delta = adv_inputs.double() - inputs.double()
    return Distances(*(perturbation_norm(delta, norm) for norm in ("l0", "l1", "l2", "linf")))


def projection_of(images: Tensor) -> Tensor:
    """Return one number per image that differs between nearly all different images, shape (N,), float64.

    The number is the inner product of the image with fixed random signs, divided by the square root of the number of
    components. If the components of two images differ by at most d, their numbers differ by about d or less.
    """
    flat = images.double().flatten(1)
    drawn = torch.randint(2, (flat.shape[1],), generator=torch.Generator().manual_seed(0), device="cpu")
    return flat @ (2 * drawn.double() - 1).to(flat) / flat.shape[1] ** 0.5


def within_threat_model(inputs: Tensor, adv_inputs: Tensor, threat_model: ThreatModel) -> Tensor:
    """Whether each image is finite, in [0, 1] and inside the ball, apart from rounding, shape (N,), bool."""
    flat = adv_inputs.flatten(1)
    in_box = (flat >= -BOX_TOLERANCE).all(1) & (flat <= 1 + BOX_TOLERANCE).all(1)
    return in_box & (perturbation_norm(adv_inputs - inputs, threat_model.norm) <= allowed_radii(threat_model))


def judge_images(
    inputs: Tensor, returned: Tensor, threat_model: ThreatModel, *, bound: bool, may_stay: Tensor
) -> JudgedImages:
    """Check the images that a library returned, and project them into the threat model.

    The reasons for invalid results are "nan", "out-of-bounds", "out-of-ball", "black" and "unchanged", see `KINDS`.
    Images that do not fool the model are projected as well.

    Args:
        inputs: clean images, shape (N, C, H, W).
        returned: returned images, same shape.
        threat_model: the threat model.
        bound: whether the attack should stay inside the ball.
        may_stay: whether the clean image is a valid result for each image, shape (N,), bool: the library returns it on
            failure, or the image ran out of queries.

    Returns:
        The images clipped to the ball (linf: clamped; l2 and l1: rescaled; l0: only the largest changes remain) and to
        [0, 1], and the reasons why each was invalid. An image with a NaN is replaced by the clean image.
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
    """Return the reasons for invalid results that depend on the model's outputs.

    "unchanged": the model is fooled by a mere rounding difference from the clean image. "barely-moved": the model is
    not fooled, and the change is so small that rounding to 8 bits removes it. With a radius, the change must also be
    less than a tenth of the radius.

    Args:
        inputs: clean images, shape (N, C, H, W).
        adv_inputs: examples within the threat model, same shape.
        hit: whether each example fools the model, shape (N,), bool.
        threat_model: the threat model.
        may_stay: as for `judge_images`. These images may be returned nearly unchanged.

    Returns:
        For each reason a mask of its images, shape (N,), bool.
    """
    change = adv_inputs.double() - inputs.double()
    unchanged = perturbation_norm(change, "linf") <= UNCHANGED
    size, allowed = perturbation_norm(change, threat_model.norm), allowed_radii(threat_model)
    invisible = (quantise(adv_inputs) == quantise(inputs)).flatten(1).all(1)
    return {"unchanged": hit & unchanged, "barely-moved": ~hit & invisible & (size <= LITTLE * allowed) & ~may_stay}


def belongs_to_other_image(inputs: Tensor, adv_inputs: Tensor) -> Tensor:
    """Find examples that belong to a different image of the run.

    An example of image i belongs to image j under two conditions. Its l2 distance to image j is less than half of its
    distance to image i. And its distance to image j is at most that of image j's own example. This detects swapped or
    repeated examples and copies of other images. It does not detect examples that are merely far from their clean
    images.

    Args:
        inputs: clean images, shape (N, C, H, W). All pairs are compared with one matrix product.
        adv_inputs: examples, same shape.

    Returns:
        Whether each example belongs to a different image, shape (N,), bool.
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
    """Move images into the ball if they are outside by more than rounding. All other images do not change."""
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
    """Round images to 8 bits per component: floor(255 x + 1/2) / 255, in the same dtype."""
    return (images * 255 + 0.5).floor() / 255
