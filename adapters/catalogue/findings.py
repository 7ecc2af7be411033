"""Known defects of the libraries' algorithms: the rows run as shipped and carry these ids.

Each was seen in the source and reproduced with ART 1.20, Foolbox 3.3 and torchattacks 3.5.
"""

from collections.abc import Mapping

from ..attack import Implementation

FINDINGS: Mapping[str, str] = {
    "B1": "adds an absolute epsilon to the norm of a mean-reduced gradient: confident images take shorter steps",
    "B2": "its l1 steps move one pixel only, so the budget is not used",
    "B3": "Adam is never used: the steps are plain gradient steps",
    "B4": "accumulates the sign of the gradient instead of the gradient",
    "B5": "uses the step size of the first image for every image of the batch",
    "B6": "with fewer gradients than classes the logits are looked up at the wrong classes",
    "B8": "the l2 update divides where the method multiplies",
    "B9": "its l1 version crashes on an unset variable",
    "B10": "targeted by label it compares the prediction with the target and returns the input",
    "B11": "ignores the target function and takes the labels for the targets",
    "B12": "the margin is taken against 0: results change when a constant is added to all logits",
    "B13": "returns a black image where it fails, and calls it a success",
    "B14": "optimises the very tensor that it measures distances from; pixels leave [0, 1]",
    "B15": "a wrong power of the gradient norm gives NaN images, counted as successes",
    "B16": "the projection divides the norms by themselves and so does nothing",
    "B19": "its noise is clipped to [0, 1]: pixels only get brighter",
    "B20": "l0: four rounds only, so no pixel is frozen; linf: the constant is missing in the gradient",
    "B21": "one transform for the whole batch; the horizontal shift is computed from the number of channels",
    "final-iterate": "judges success on the last iterate only; a failure returns the random start",
    "doubling-constant": "the trade-off constant only doubles: few rounds never reach a large one",
    "saturated-pixels": "pixels that are exactly 0 or 1 never move",
    "confidence-ignored": "the confidence shapes the loss but not the choice of the result",
    "radius-uniform": "the radius of the random start is uniform: most starts are near the image",
    "clip-before-project": "clips to [0, 1] before projecting onto the ball, where the others project first",
    "decay-off": "the momentum is 0 by default, unlike the paper's 1",
    "includes-di": "always resizes inputs at random too, unless diversity_probability is 0",
    "short-steps": "runs its inner attacks for 10 steps, where the published ensemble runs 100",
    "deepfool-for-fab": "has DeepFool (10 gradients) in the place of FAB",
    "before-projection": "returns the point before the last projection onto the boundary: farther than it found",
    "distance-discarded": "discards a result farther than its epsilon and returns the input",
    "largest-gradients": "takes the two largest target gradients instead of the best pair",
    "not-fixed-budget": "lets its radius grow while it runs",
    "norm-1-is-2": "treats norm 1 as norm 2",
    "batch-mean": "keeps the iterate with the best mean over the batch",
    "nan-momentum": "a zero gradient turns the momentum into NaN: the image never moves again",
    "decay-ignored": "takes a momentum and a probability, and uses neither",
    "targeted-any-class": "in targeted mode any wrong class ends the search",
    "target-modulo-10": "untargeted it aims at the label plus one modulo 10, whatever the classes",
    "pairwise-memory": "compares all pairs of components: memory grows with the square of their number",
    "rounds-continue": "a round of the binary search goes on from the end of the last one, not from the image",
    "swapped-axes": "takes columns for rows where it writes pixels: crashes on images wider than high",
    "every-class": "takes the gradient of every class at every step: very slow with 1000 classes",
    "one-short-step": "one step of 0.01 by default, so most of the budget is not used",
    "small-difference": "its default numerical step vanishes in float32",
    "step-per-component": "l2 and l1: its Adam moves every component by the step size, so steps leave the ball at once",
    "targeted-mask": "targeted, it freezes the saturated pixels that could move and moves those that cannot",
    "one-too-many": "l0: keeps one component more than its radius, so one alone is never enough",
    "fitness-logit": "its fitness subtracts a logit where the exponential of the logit belongs",
    "on-the-boundary": "ends within rounding of the boundary: scored in another batch size, some images no longer fool",
    "signed-maximum": "linf: scales by the largest signed value; what is larger below zero is clipped afterwards",
    "untargeted-ratio": "targeted, it still uses the ratio loss of the untargeted attack, and keeps its smallest value",
    "no-square-in-l1": "in l1 its Square does nothing",
    "any-class-is-target": "linf: targeted, its test is inverted: whatever is not the target counts as a success",
    "truncates-levels": "cuts values down to whole 8-bit levels: up to 1/255 past the radius it is given",
    "gradient-overflow": "stops with an error where a component of the gradient is above 0.24 in size",
}

# Where a finding concerns some of a row's norms only.
_NORMS: Mapping[str, tuple[str, ...]] = {
    "B1": ("l2", "l1"),
    "B2": ("l1",),
    "B3": ("l2", "l1"),
    "B4": ("linf",),
    "B5": ("l2",),
    "B8": ("l2",),
    "B9": ("l1",),
    "B16": ("l2",),
    "B20": ("l0", "linf"),
    "any-class-is-target": ("linf",),
    "clip-before-project": ("l2", "l1"),
    "doubling-constant": ("l2",),
    "no-square-in-l1": ("l1",),
    "norm-1-is-2": ("l1",),
    "one-too-many": ("l0",),
    "radius-uniform": ("l2",),
    "signed-maximum": ("linf",),
    "step-per-component": ("l2", "l1"),
}


def findings_of(row: Implementation, norm: str) -> tuple[str, ...]:
    """The ids of a row's findings that concern a norm."""
    return tuple(key for key in row.findings if norm in _NORMS.get(key, (norm,)))
