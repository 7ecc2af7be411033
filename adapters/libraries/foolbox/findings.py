"""Known issues of Foolbox 3.3, each found in the source and reproduced. The implementations run as shipped."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "adam-unused": KnownIssue("never uses Adam, so its steps are plain gradient steps", ("l2", "l1")),
    "sign-accumulated": KnownIssue("accumulates the sign of the gradient instead of the gradient", ("linf",)),
    "black-on-failure": KnownIssue("returns a black image on failure and reports it as a success"),
    "nan-power": KnownIssue(
        "uses a wrong power of the gradient norm, which gives NaN images that it counts as successes"
    ),
    "projection-void": KnownIssue(
        "divides norms by themselves in the projection, so the projection has no effect", ("l2",)
    ),
    "step-per-component": KnownIssue(
        "l2 and l1: moves every component by the step size with Adam, so the first step already leaves the ball",
        ("l2", "l1"),
    ),
    "targeted-mask": KnownIssue(
        "targeted, it freezes the pixels at 0 or 1 that could move, and tries to move those that cannot"
    ),
    "one-too-many": KnownIssue(
        "l0: changes one component more than its radius, so a single changed component is never found", ("l0",)
    ),
    "fitness-logit": KnownIssue("its fitness subtracts a logit instead of the exponential of the logit"),
    "signed-maximum": KnownIssue(
        "linf: scales by the largest signed value, so larger negative values are clipped afterwards", ("linf",)
    ),
}
