"""Known issues of torchattacks 3.5. A test shows each issue. davylamp runs the code unchanged."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "first-step-size": KnownIssue("uses the step size of the first image for every image of the batch", ("l2",)),
    "l1-crashes": KnownIssue("crashes in l1 because a variable is not set", ("l1",)),
    "target-compared": KnownIssue(
        "returns the input if targets are given as labels, because it compares the prediction with the target class"
    ),
    "targets-ignored": KnownIssue("ignores the function that chooses targets, and uses the labels as targets"),
    "margin-against-zero": KnownIssue("compares logits with 0, so results change if a constant is added to all logits"),
    "reference-overwritten": KnownIssue(
        "overwrites the clean image from which it measures distances, and lets pixels leave [0, 1]"
    ),
    "saturated-pixels": KnownIssue("never moves pixels that are exactly 0 or 1"),
    "clamped-in-graph": KnownIssue(
        "computes gradients through clipping, so from torch 2.15 on it never moves pixels that are exactly 0 or 1"
    ),
    "decay-off": KnownIssue("uses a momentum of 0 by default, instead of the paper's 1"),
    "includes-di": KnownIssue("also resizes inputs at random, unless diversity_probability is 0"),
    "short-steps": KnownIssue("runs its inner attacks for 10 steps, instead of the 100 of the published ensemble"),
    "decay-ignored": KnownIssue("accepts a momentum and a probability, but uses neither"),
    "targeted-any-class": KnownIssue("ends a targeted search at any wrong class"),
    "target-modulo-10": KnownIssue(
        "aims at the label plus one modulo 10 if untargeted, so it crashes with fewer than 10 classes"
    ),
    "pairwise-memory": KnownIssue(
        "compares all pairs of components, so its memory grows with the square of the image size"
    ),
    "swapped-axes": KnownIssue(
        "mistakes columns for rows when it writes pixels, so it crashes on images that are wider than high"
    ),
    "one-short-step": KnownIssue("makes one step of 0.01 by default, so most of the radius is not used"),
}
