"""Known issues of ART 1.20, each found in the source and reproduced. The implementations run as shipped."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "overshoot-at-the-end": KnownIssue(
        "checks whether the boundary is crossed before the overshoot is added, so it ends slightly farther from the "
        "image than implementations that check after it"
    ),
    "confidence-in-the-loss": KnownIssue(
        "linf: uses the confidence in the loss but not when selecting the result: any misclassified image "
        "ends the search",
        ("linf",),
    ),
    "wrong-class-lookup": KnownIssue("with fewer gradients than classes, the logits of wrong classes are used"),
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
    "deepfool-for-fab": KnownIssue("uses DeepFool (10 gradients) in place of FAB"),
    "before-projection": KnownIssue(
        "returns the point before the last projection onto the boundary, which is farther than the best one"
    ),
    "largest-gradients": KnownIssue("selects the two largest target gradients instead of the best pair"),
    "not-fixed-budget": KnownIssue("increases its radius during the attack"),
    "norm-1-is-2": KnownIssue("treats norm 1 as norm 2", ("l1",)),
    "stops-at-zero-loss": KnownIssue(
        "untargeted, it stops when the loss of all images of the call is zero, even if it has not started to rise"
    ),
    "sign-unused": KnownIssue(
        "linf: computes the sign of its direction but steps along the direction itself, so steps have almost no length",
        ("linf",),
    ),
    "batch-mean": KnownIssue("returns the iterate with the best mean over the batch"),
    "untargeted-ratio": KnownIssue(
        "targeted, it still uses the ratio loss of the untargeted attack, and selects its smallest value"
    ),
    "no-square-in-l1": KnownIssue("in l1 its Square does nothing", ("l1",)),
    "any-class-is-target": KnownIssue(
        "linf: targeted, its test is inverted, so every class except the target counts as a success", ("linf",)
    ),
    "truncates-levels": KnownIssue(
        "truncates values to whole 8-bit levels, so results may be up to 1/255 beyond the radius"
    ),
    "step-alone": KnownIssue(
        "keeps a step only if it alone moves the image to the target, so short steps that would add up are discarded"
    ),
    "gradient-overflow": KnownIssue("stops with an error if a component of the gradient is above 0.24 in size"),
}
