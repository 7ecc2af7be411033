"""Known issues of ART 1.20, each found in the source and reproduced. The implementations run as shipped."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "overshoot-at-the-end": KnownIssue(
        "iterates until the boundary is crossed without its overshoot, and adds that afterwards: a little farther than "
        "implementations that include it in the check"
    ),
    "confidence-in-the-loss": KnownIssue(
        "linf: the confidence shapes the loss but not the choice of the result: any misclassified image ends it",
        ("linf",),
    ),
    "wrong-class-lookup": KnownIssue("with fewer gradients than classes the logits are looked up at the wrong classes"),
    "l2-divides": KnownIssue("the l2 update divides where the method multiplies", ("l2",)),
    "noise-brightens": KnownIssue("its noise is clipped to [0, 1]: pixels only get brighter"),
    "four-rounds": KnownIssue(
        "l0: four rounds only, so no pixel is frozen; linf: the constant is missing in the gradient", ("l0", "linf")
    ),
    "one-transform": KnownIssue(
        "one transform for the whole batch; the horizontal shift is computed from the number of channels"
    ),
    "final-iterate": KnownIssue("judges success on the last iterate only; a failure returns the random start"),
    "doubling-constant": KnownIssue("the trade-off constant only doubles: few rounds never reach a large one", ("l2",)),
    "clip-before-project": KnownIssue(
        "clips to [0, 1] before it projects onto the ball, in the opposite order to other libraries", ("l2", "l1")
    ),
    "deepfool-for-fab": KnownIssue("has DeepFool (10 gradients) in the place of FAB"),
    "before-projection": KnownIssue(
        "returns the point before the last projection onto the boundary: farther than it found"
    ),
    "largest-gradients": KnownIssue("selects the two largest target gradients instead of the best pair"),
    "not-fixed-budget": KnownIssue("increases its radius during the attack"),
    "norm-1-is-2": KnownIssue("treats norm 1 as norm 2", ("l1",)),
    "stops-at-zero-loss": KnownIssue(
        "untargeted, it stops when the loss of all images of the call is zero, even before the loss begins to rise"
    ),
    "sign-unused": KnownIssue(
        "linf: computes the sign of its direction and steps along the direction itself: steps of almost no length",
        ("linf",),
    ),
    "batch-mean": KnownIssue("returns the iterate with the best mean over the batch"),
    "untargeted-ratio": KnownIssue(
        "targeted, it still uses the ratio loss of the untargeted attack, and selects its smallest value"
    ),
    "no-square-in-l1": KnownIssue("in l1 its Square does nothing", ("l1",)),
    "any-class-is-target": KnownIssue(
        "linf: targeted, its test is inverted: whatever is not the target counts as a success", ("linf",)
    ),
    "truncates-levels": KnownIssue("truncates values to whole 8-bit levels: up to 1/255 beyond its radius"),
    "step-alone": KnownIssue(
        "a step counts only if it moves that image to the target: short steps are discarded, though they would add up"
    ),
    "gradient-overflow": KnownIssue("stops with an error if a component of the gradient is above 0.24 in size"),
}
