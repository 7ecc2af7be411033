"""Known defects of Foolbox 3.3, each seen in the source and reproduced; the rows run as shipped."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "adam-unused": KnownIssue("Adam is never used: the steps are plain gradient steps", ("l2", "l1")),
    "sign-accumulated": KnownIssue("accumulates the sign of the gradient instead of the gradient", ("linf",)),
    "black-on-failure": KnownIssue("returns a black image where it fails, and calls it a success"),
    "nan-power": KnownIssue("a wrong power of the gradient norm gives NaN images, counted as successes"),
    "projection-void": KnownIssue("the projection divides the norms by themselves and so does nothing", ("l2",)),
    "step-per-component": KnownIssue(
        "l2 and l1: its Adam moves every component by the step size, so steps leave the ball at once", ("l2", "l1")
    ),
    "targeted-mask": KnownIssue(
        "targeted, it freezes the saturated pixels that could move and moves those that cannot"
    ),
    "one-too-many": KnownIssue("l0: keeps one component more than its radius, so one alone is never enough", ("l0",)),
    "fitness-logit": KnownIssue("its fitness subtracts a logit where the exponential of the logit belongs"),
    "signed-maximum": KnownIssue(
        "linf: scales by the largest signed value; what is larger below zero is clipped afterwards", ("linf",)
    ),
}
