"""Known issues of Foolbox 3.3. A test shows each issue. davylamp runs the code unchanged."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "adam-unused": KnownIssue("does not use Adam, so its steps are plain gradient steps", ("l2", "l1")),
    "sign-accumulated": KnownIssue("accumulates the sign of the gradient instead of the gradient", ("linf",)),
    "black-on-failure": KnownIssue("returns a black image on failure and reports it as a success"),
    "nan-power": KnownIssue(
        "uses a wrong power of the gradient norm, so images become NaN, and it counts them as successes"
    ),
    "projection-void": KnownIssue(
        "in its projection, divides norms by themselves, so the projection has no effect", ("l2",)
    ),
    "step-per-component": KnownIssue(
        "in l2 and l1, Adam changes every component by the step size, so the first step already exceeds the radius",
        ("l2", "l1"),
    ),
    "targeted-mask": KnownIssue(
        "in a targeted attack, does not change pixels at 0 or 1 that could move, and tries to change those that cannot"
    ),
    "one-too-many": KnownIssue(
        "in l0, changes one component more than its radius, so it never finds an example with one changed component",
        ("l0",),
    ),
    "fitness-logit": KnownIssue("its fitness function subtracts a logit instead of the exponential of the logit"),
    "signed-maximum": KnownIssue(
        "linf: scales by the largest signed value, so larger negative values are clipped afterwards", ("linf",)
    ),
}
