"""Known issues of torchattack 1.7, each found in the source and reproduced. The implementations run as shipped."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "momentum-dropped": KnownIssue(
        "uses only the current step's gradients, so nothing accumulates, whatever the momentum"
    ),
    "copies-counted-again": KnownIssue(
        "sums gradients that are already accumulated, so the first of m copies counts m times and the last once"
    ),
    "tuning-counted": KnownIssue(
        "also adds the gradients that only serve to tune the warps, as if they belonged to the tuned warps"
    ),
    "one-warp": KnownIssue(
        "tunes one warp for all images of a call, by their mean loss, so the result for an image depends on the "
        "other images"
    ),
    "wider-kernel": KnownIssue("smooths with the square root of the paper's kernel, which is wider by a factor of 1.4"),
    "climbs-the-label": KnownIssue(
        "increases the probability that the paper decreases: untargeted, it makes the model more confident; "
        "targeted, it moves away from the target"
    ),
    "every-step-shrinks": KnownIssue(
        "compares the values of two gradients instead of their signs, so every step is shorter than the previous one"
    ),
    "neighbours-flee": KnownIssue("follows gradients away from the target at neighbouring points, if targeted"),
    "mixed-with-itself": KnownIssue(
        "mixes in images of the same call, as in the paper, so a single image is mixed with itself"
    ),
    "start-outside": KnownIssue("its random start may leave [0, 1], so the first query may not be an image", ("l2",)),
}
