"""Known issues that several libraries share."""

from collections.abc import Mapping

from .library import KnownIssue

COMMON: Mapping[str, KnownIssue] = {
    "epsilon-on-mean-gradient": KnownIssue(
        "adds an absolute epsilon to the norm of a mean-reduced gradient: confident images get shorter steps",
        ("l2", "l1"),
    ),
    "l1-one-pixel": KnownIssue("its l1 steps move one pixel only, so the budget is not used", ("l1",)),
    "confidence-ignored": KnownIssue("uses the confidence in the loss but ignores it when selecting the result"),
    "small-difference": KnownIssue("its default numerical step vanishes in float32"),
    "radius-uniform": KnownIssue("the radius of the random start is uniform: most starts are near the image", ("l2",)),
    "nan-momentum": KnownIssue("a zero gradient turns the momentum into NaN: the image never moves again"),
    "every-class": KnownIssue("computes the gradient of every class at every step: very slow with 1000 classes"),
    "short-of-the-boundary": KnownIssue(
        "aims at the boundary itself: if rounding leaves it short, it stalls there and the image is never fooled",
        ("l2", "l1"),
    ),
    "on-the-boundary": KnownIssue(
        "ends within rounding of the boundary: classified in a different batch size, some images no longer fool"
    ),
    "rounds-continue": KnownIssue(
        "a round of the binary search starts from the end of the last one, not from the image"
    ),
    "last-step-unseen": KnownIssue("never evaluates its last iterate: n steps are n - 1, and one step is none"),
    "distance-discarded": KnownIssue("discards a result farther than its epsilon and returns the input"),
    "last-row-and-column": KnownIssue("its squares never reach the last row and the last column of an image"),
}
