"""Known issues that occur in several libraries."""

from collections.abc import Mapping

from .library import KnownIssue

COMMON: Mapping[str, KnownIssue] = {
    "epsilon-on-mean-gradient": KnownIssue(
        "averages the loss over the batch, and adds a constant to the norm of the gradient, so steps are shorter on "
        "images that the model classifies with high confidence",
        ("l2", "l1"),
    ),
    "l1-one-pixel": KnownIssue("changes only one component in each l1 step, so it may not reach the radius", ("l1",)),
    "confidence-ignored": KnownIssue(
        "uses the parameter confidence in the loss, but ignores it when it selects the result"
    ),
    "small-difference": KnownIssue(
        "its default step for finite differences is so small that float32 rounds the differences to zero"
    ),
    "radius-uniform": KnownIssue(
        "draws the distance of its random start uniformly, so most starts are near the image", ("l2",)
    ),
    "nan-momentum": KnownIssue("after a zero gradient, the momentum is NaN, and the image is not changed any more"),
    "every-class": KnownIssue(
        "computes the gradient of every class in every step, so it is very slow with 1000 classes"
    ),
    "short-of-the-boundary": KnownIssue(
        "projects exactly onto the decision boundary, so it never fools an image for which rounding ends the step just "
        "before the boundary",
        ("l2", "l1"),
    ),
    "on-the-boundary": KnownIssue(
        "its examples are so near the decision boundary that some fool the model only in a batch of the same size"
    ),
    "rounds-continue": KnownIssue(
        "starts each round of the binary search at the end of the previous round instead of at the image"
    ),
    "last-step-unseen": KnownIssue(
        "never evaluates its last iterate, so n steps have the effect of n - 1, and a single step has no effect"
    ),
    "distance-discarded": KnownIssue("returns the input if its result is farther away than epsilon"),
    "last-row-and-column": KnownIssue("its squares never reach the last row and the last column of an image"),
}
