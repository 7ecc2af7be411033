"""Known defects that several libraries share."""

from collections.abc import Mapping

from .library import Finding

COMMON: Mapping[str, Finding] = {
    "epsilon-on-mean-gradient": Finding(
        "adds an absolute epsilon to the norm of a mean-reduced gradient: confident images take shorter steps",
        ("l2", "l1"),
    ),
    "l1-one-pixel": Finding("its l1 steps move one pixel only, so the budget is not used", ("l1",)),
    "confidence-ignored": Finding("the confidence shapes the loss but not the choice of the result"),
    "small-difference": Finding("its default numerical step vanishes in float32"),
    "radius-uniform": Finding("the radius of the random start is uniform: most starts are near the image", ("l2",)),
    "nan-momentum": Finding("a zero gradient turns the momentum into NaN: the image never moves again"),
    "every-class": Finding("takes the gradient of every class at every step: very slow with 1000 classes"),
    "short-of-the-boundary": Finding(
        "aims at the boundary itself: where rounding leaves it short, it stalls there and the image is never fooled",
        ("l2", "l1"),
    ),
    "on-the-boundary": Finding(
        "ends within rounding of the boundary: scored in another batch size, some images no longer fool"
    ),
    "rounds-continue": Finding("a round of the binary search goes on from the end of the last one, not from the image"),
    "last-step-unseen": Finding("never asks about its last iterate: n steps are n - 1, and one step is none"),
    "distance-discarded": Finding("discards a result farther than its epsilon and returns the input"),
    "last-row-and-column": Finding("its squares never reach the last row and the last column of an image"),
}
