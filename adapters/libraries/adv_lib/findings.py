"""Known issues of adversarial-library 0.2, each reproduced. The implementations run as shipped."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "rounds-to-8-bit": KnownIssue(
        "rounds every iterate to 256 levels by default, so its examples are farther from the image than unrounded ones"
    ),
    "projection-stretches": KnownIssue(
        "its l2 projection also stretches perturbations inside the ball, so every iterate lies on the sphere", ("l2",)
    ),
    "last-component": KnownIssue("crashes if changing one component is enough for every image of the call", ("l0",)),
    "tolerance-turned": KnownIssue(
        "its tolerance has the wrong sign for targeted attacks, so images that miss the target are accepted"
    ),
    "nan-on-flat": KnownIssue("a zero gradient turns its perturbation into NaN, so the image never moves again"),
    "halved-anyway": KnownIssue(
        "from its second check on, no loss counts as an improvement, so it halves the step at every other check",
        ("linf", "l2"),
    ),
    "target-against-best": KnownIssue(
        "its targeted loss compares the target with the best other class, whereas the paper compares it with the label"
    ),
    "whole-pixels": KnownIssue(
        "l0: by default keeps or drops whole pixels, so it changes several times more components than its 2/3 operator",
        ("l0",),
    ),
    "short-reach": KnownIssue("moves at most 0.001 per step by default, so 100 steps reach only 0.1", ("l2",)),
    "long-last-stage": KnownIssue("its last stage always runs 3200 steps, however few are requested"),
}
