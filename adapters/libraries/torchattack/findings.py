"""Known issues of torchattack 1.7. A test shows each issue. davylamp runs the code unchanged."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "momentum-dropped": KnownIssue(
        "does not accumulate past gradients, whatever the momentum: each step uses only its own gradients"
    ),
    "copies-counted-again": KnownIssue(
        "adds up sums of gradients over copies, so the first of m copies counts m times, and the last copy once"
    ),
    "tuning-counted": KnownIssue(
        "also counts the gradients that tune a warp, although only the gradients of the tuned warp should count"
    ),
    "one-warp": KnownIssue(
        "tunes one warp for all images of a call, by their mean loss, so the result for an image depends on the "
        "other images of the call"
    ),
    "wider-kernel": KnownIssue(
        "smooths gradients with the square root of the paper's kernel, which is wider by a factor of 1.4"
    ),
    "climbs-the-label": KnownIssue(
        "changes a probability in the opposite direction: an untargeted attack makes the model more confident, and a "
        "targeted attack moves away from the target"
    ),
    "every-step-shrinks": KnownIssue(
        "compares the values of two gradients instead of their signs, so each step is shorter than the step before"
    ),
    "neighbours-flee": KnownIssue(
        "at neighbouring points, its targeted version follows gradients away from the target"
    ),
    "mixed-with-itself": KnownIssue(
        "mixes in images of the same call, as in the paper, so a single image is mixed with itself"
    ),
    "start-outside": KnownIssue("its random start may leave [0, 1], so the first query may not be an image", ("l2",)),
}
