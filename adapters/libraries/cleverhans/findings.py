"""Known issues of CleverHans 4.0. A test shows each issue. davylamp runs the code unchanged."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "floor-on-mean-gradient": KnownIssue(
        "averages the loss over the batch, and divides the gradient by at least 1e-6, so steps are shorter in larger "
        "batches, and on images that the model classifies with high confidence",
        ("l2",),
    ),
    "crashes-on-flat": KnownIssue("crashes if the gradient of one image of the call is zero", ("l1",)),
    "start-thrown-away": KnownIssue("discards its random start if bounds are given"),
    "shrinks-to-the-ball": KnownIssue(
        "scales a perturbation beyond the radius down, instead of projecting it onto the ball as in the paper"
    ),
    "twice-the-image": KnownIssue(
        "computes finite differences around twice the clean image in every step, instead of around the perturbed image"
    ),
}
