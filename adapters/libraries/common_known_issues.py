"""Known issues that several libraries share."""

from collections.abc import Mapping

from .library import KnownIssue

COMMON: Mapping[str, KnownIssue] = {
    "epsilon-on-mean-gradient": KnownIssue(
        "adds an absolute epsilon to the norm of a mean-reduced gradient, so confident images take shorter steps",
        ("l2", "l1"),
    ),
    "l1-one-pixel": KnownIssue("its l1 steps move one pixel only, so the budget is not used", ("l1",)),
    "confidence-ignored": KnownIssue("uses the confidence in the loss but ignores it when selecting the result"),
    "small-difference": KnownIssue("its default numerical step vanishes in float32"),
    "radius-uniform": KnownIssue(
        "the radius of the random start is uniform, so most starts are near the image", ("l2",)
    ),
    "nan-momentum": KnownIssue("a zero gradient turns the momentum into NaN, so the image never moves again"),
    "every-class": KnownIssue(
        "computes the gradient of every class in every step, so it is very slow with 1000 classes"
    ),
    "short-of-the-boundary": KnownIssue(
        "aims at the boundary itself, so it stalls if rounding leaves it short, and the image is never fooled",
        ("l2", "l1"),
    ),
    "on-the-boundary": KnownIssue(
        "ends within rounding of the boundary, so some images no longer fool when classified in a different batch size"
    ),
    "rounds-continue": KnownIssue(
        "a round of the binary search starts at the end of the previous round instead of at the image"
    ),
    "last-step-unseen": KnownIssue(
        "never evaluates its last iterate, so n steps have the effect of n - 1, and a single step has none"
    ),
    "distance-discarded": KnownIssue("discards a result farther than its epsilon and returns the input"),
    "last-row-and-column": KnownIssue("its squares never reach the last row and the last column of an image"),
}
