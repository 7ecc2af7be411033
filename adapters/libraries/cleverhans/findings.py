"""Known issues of CleverHans 4.0, each found in the source and reproduced. The implementations run as shipped."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "floor-on-mean-gradient": KnownIssue(
        "divides a gradient that is averaged over the batch by at least 1e-6: confident images take shorter steps, "
        "shorter still in a larger batch",
        ("l2",),
    ),
    "crashes-on-flat": KnownIssue("crashes if one image of the call has no gradient", ("l1",)),
    "start-thrown-away": KnownIssue("discards its random start if bounds are given"),
    "shrinks-to-the-ball": KnownIssue(
        "shrinks a perturbation that is too large, where the paper projects it onto the ball"
    ),
    "twice-the-image": KnownIssue(
        "takes its differences around twice the clean image at every step, instead of around the perturbed one"
    ),
}
