"""Known issues of CleverHans 4.0, each found in the source and reproduced. The implementations run as shipped."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "floor-on-mean-gradient": KnownIssue(
        "averages the gradient over the batch and divides it by at least 1e-6, so steps are shorter on confident "
        "images and in larger batches",
        ("l2",),
    ),
    "crashes-on-flat": KnownIssue("crashes if one image of the call has no gradient", ("l1",)),
    "start-thrown-away": KnownIssue("discards its random start if bounds are given"),
    "shrinks-to-the-ball": KnownIssue(
        "scales down a perturbation that is too large, whereas the paper projects it onto the ball"
    ),
    "twice-the-image": KnownIssue(
        "computes finite differences around twice the clean image in every step, instead of around the perturbed image"
    ),
}
