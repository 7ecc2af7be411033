"""Known issues of adversarial-library 0.2. A test shows each issue. davylamp runs the code unchanged."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "rounds-to-8-bit": KnownIssue(
        "rounds every iterate to 256 levels by default, so examples are farther from the image than without rounding"
    ),
    "projection-stretches": KnownIssue(
        "its l2 projection also enlarges perturbations inside the ball, so every iterate is at the radius", ("l2",)
    ),
    "last-component": KnownIssue("crashes if changing one component is enough for every image of the call", ("l0",)),
    "tolerance-turned": KnownIssue(
        "its tolerance has the wrong sign for targeted attacks, so it accepts images that do not reach the target"
    ),
    "nan-on-flat": KnownIssue("a zero gradient turns its perturbation into NaN, so the image never moves again"),
    "halved-anyway": KnownIssue(
        "from its second check of the loss on, no loss counts as an improvement, so the step is halved at every other "
        "check",
        ("linf", "l2"),
    ),
    "target-against-best": KnownIssue(
        "its targeted loss compares the target with the most likely other class, instead of with the label as in the "
        "paper"
    ),
    "whole-pixels": KnownIssue(
        "in l0, its default operator changes all channels of a pixel, so it changes several times more components than "
        "its 2/3 operator",
        ("l0",),
    ),
    "short-reach": KnownIssue("moves at most 0.001 per step by default, so 100 steps reach only 0.1", ("l2",)),
    "long-last-stage": KnownIssue("its last stage always runs 3200 steps, however few are requested"),
}
