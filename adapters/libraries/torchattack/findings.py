"""Known defects of torchattack 1.7, each seen in the source and reproduced; the rows run as shipped."""

from collections.abc import Mapping

from ..library import Finding

FINDINGS: Mapping[str, Finding] = {
    "momentum-dropped": Finding(
        "starts every step from that step's gradients alone: nothing accumulates, whatever the momentum"
    ),
    "copies-counted-again": Finding(
        "adds up a gradient that adds up by itself: the first of m copies counts m times, the last once"
    ),
    "tuning-counted": Finding(
        "the gradients behind the untuned warps, there to tune them, count like those behind the tuned ones"
    ),
    "one-warp": Finding("tunes one warp for all images of a call, by their mean loss: each depends on the others"),
    "wider-kernel": Finding("smooths with the root of the paper's kernel, which is wider by a factor of 1.4"),
    "climbs-the-label": Finding(
        "climbs the probability that the paper descends: untargeted it makes the model surer, targeted it flees"
    ),
    "every-step-shrinks": Finding(
        "compares the values of two gradients where the paper compares signs: every step is shorter than the last"
    ),
    "neighbours-flee": Finding("targeted, the gradients of the neighbours lead away from the target"),
    "mixed-with-itself": Finding(
        "mixes in images of the same call, its part in the paper: alone in a call, an image is mixed with itself"
    ),
    "start-outside": Finding("its random start may leave [0, 1]: the first query is not of an image", ("l2",)),
}
