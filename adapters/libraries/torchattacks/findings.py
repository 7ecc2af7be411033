"""Known issues of torchattacks 3.5, each found in the source and reproduced. The implementations run as shipped."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "first-step-size": KnownIssue("uses the step size of the first image for every image of the batch", ("l2",)),
    "l1-crashes": KnownIssue("its l1 version crashes on an unset variable", ("l1",)),
    "target-compared": KnownIssue(
        "targeted by label, it compares the prediction with the target and returns the input"
    ),
    "targets-ignored": KnownIssue("ignores the target function and uses the labels as targets"),
    "margin-against-zero": KnownIssue(
        "computes the margin relative to 0, so results change when a constant is added to all logits"
    ),
    "reference-overwritten": KnownIssue("optimises the tensor from which it measures distances; pixels leave [0, 1]"),
    "saturated-pixels": KnownIssue("pixels that are exactly 0 or 1 never move"),
    "clamped-in-graph": KnownIssue(
        "clips inside the graph, so since torch 2.15 pixels that are exactly 0 or 1 have no gradient and never move"
    ),
    "decay-off": KnownIssue("the momentum is 0 by default, unlike the paper's 1"),
    "includes-di": KnownIssue("always resizes inputs at random as well, unless diversity_probability is 0"),
    "short-steps": KnownIssue("runs its inner attacks for 10 steps, where the published ensemble runs 100"),
    "decay-ignored": KnownIssue("accepts a momentum and a probability, and uses neither"),
    "targeted-any-class": KnownIssue("in targeted mode any wrong class ends the search"),
    "target-modulo-10": KnownIssue(
        "untargeted, its target is the label plus one modulo 10, so it crashes with fewer than 10 classes"
    ),
    "pairwise-memory": KnownIssue("compares all pairs of components, so memory grows with the square of their number"),
    "swapped-axes": KnownIssue(
        "mistakes columns for rows when it writes pixels, so it crashes on images that are wider than high"
    ),
    "one-short-step": KnownIssue("one step of 0.01 by default, so most of the budget is not used"),
}
