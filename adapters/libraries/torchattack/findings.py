"""Known issues of torchattack 1.7, each found in the source and reproduced. The implementations run as shipped."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "momentum-dropped": KnownIssue(
        "starts every step from that step's gradients alone: nothing accumulates, whatever the momentum"
    ),
    "copies-counted-again": KnownIssue(
        "adds up a gradient that adds up by itself: the first of m copies counts m times, the last once"
    ),
    "tuning-counted": KnownIssue(
        "the gradients behind the untuned warps, there to tune them, count like those behind the tuned ones"
    ),
    "one-warp": KnownIssue("tunes one warp for all images of a call, by their mean loss: each depends on the others"),
    "wider-kernel": KnownIssue("smooths with the root of the paper's kernel, which is wider by a factor of 1.4"),
    "climbs-the-label": KnownIssue(
        "climbs the probability that the paper descends: untargeted it makes the model surer, targeted it flees"
    ),
    "every-step-shrinks": KnownIssue(
        "compares the values of two gradients where the paper compares signs: every step is shorter than the last"
    ),
    "neighbours-flee": KnownIssue("targeted, the gradients of the neighbours lead away from the target"),
    "mixed-with-itself": KnownIssue(
        "mixes in images of the same call, its part in the paper: alone in a call, an image is mixed with itself"
    ),
    "start-outside": KnownIssue("its random start may leave [0, 1]: the first query is not of an image", ("l2",)),
}
