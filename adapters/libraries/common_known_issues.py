"""Known issues that occur in several libraries."""

from collections.abc import Mapping

from .library import KnownIssue

COMMON: Mapping[str, KnownIssue] = {
    "epsilon-on-mean-gradient": KnownIssue(
        "adds a constant to the norm of a gradient averaged over the batch, so steps are shorter on confident images",
        ("l2", "l1"),
    ),
    "l1-one-pixel": KnownIssue("moves only one pixel in each l1 step, so the radius is not used up", ("l1",)),
    "confidence-ignored": KnownIssue("uses the confidence in the loss but ignores it when selecting the result"),
    "small-difference": KnownIssue("uses a default finite-difference step that vanishes in float32"),
    "radius-uniform": KnownIssue(
        "draws the distance of its random start uniformly, so most starts are near the image", ("l2",)
    ),
    "nan-momentum": KnownIssue("a zero gradient turns the momentum into NaN, so the image never moves again"),
    "every-class": KnownIssue(
        "computes the gradient of every class in every step, so it is very slow with 1000 classes"
    ),
    "short-of-the-boundary": KnownIssue(
        "aims exactly at the boundary, so it never fools an image if rounding makes it stop just before the boundary",
        ("l2", "l1"),
    ),
    "on-the-boundary": KnownIssue(
        "ends so near the boundary that some examples fail when they are classified in a batch of a different size"
    ),
    "rounds-continue": KnownIssue(
        "starts each round of the binary search at the end of the previous round instead of at the image"
    ),
    "last-step-unseen": KnownIssue(
        "never evaluates its last iterate, so n steps have the effect of n - 1, and a single step has none"
    ),
    "distance-discarded": KnownIssue("returns the input if its result is farther away than epsilon"),
    "last-row-and-column": KnownIssue("its squares never reach the last row and the last column of an image"),
}
