"""Known issues of ART 1.20, each found in the source and reproduced. The implementations run as shipped."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "overshoot-at-the-end": KnownIssue(
        "tests for misclassification before it adds the overshoot. Implementations that test afterwards end slightly "
        "nearer to the image"
    ),
    "confidence-in-the-loss": KnownIssue(
        "linf: uses the confidence in the loss but not when selecting the result, so any misclassified image "
        "ends the search",
        ("linf",),
    ),
    "wrong-class-lookup": KnownIssue(
        "uses the logits of wrong classes if it computes fewer gradients than there are classes"
    ),
    "l2-divides": KnownIssue("divides in its l2 update where the paper multiplies", ("l2",)),
    "noise-brightens": KnownIssue("clips its noise to [0, 1], so pixels only get brighter"),
    "four-rounds": KnownIssue(
        "l0: runs only four rounds, in which it freezes no pixel; linf: omits the constant from the gradient",
        ("l0", "linf"),
    ),
    "one-transform": KnownIssue(
        "uses one transform for the whole batch, and computes the horizontal shift from the number of channels"
    ),
    "final-iterate": KnownIssue("checks success on the last iterate only, and returns the random start if that fails"),
    "doubling-constant": KnownIssue(
        "only doubles the trade-off constant in each round, so it stays small after few rounds", ("l2",)
    ),
    "clip-before-project": KnownIssue(
        "clips to [0, 1] before it projects onto the ball, in the opposite order to other libraries", ("l2", "l1")
    ),
    "deepfool-for-fab": KnownIssue("contains DeepFool (with 10 gradients) instead of FAB"),
    "before-projection": KnownIssue(
        "returns the point before its last projection onto the boundary, which is farther away than its best point"
    ),
    "largest-gradients": KnownIssue("selects the two largest target gradients instead of the best pair"),
    "not-fixed-budget": KnownIssue("increases its radius during the attack"),
    "norm-1-is-2": KnownIssue("treats norm 1 as norm 2", ("l1",)),
    "stops-at-zero-loss": KnownIssue(
        "untargeted, it stops as soon as all images of the call have zero loss, which may be the case at the start"
    ),
    "sign-unused": KnownIssue(
        "linf: computes the sign of its direction but steps along the direction itself, so steps have almost no length",
        ("linf",),
    ),
    "batch-mean": KnownIssue("returns the iterate with the best mean over the batch"),
    "untargeted-ratio": KnownIssue(
        "targeted, it still uses the ratio loss of the untargeted attack, and selects its smallest value"
    ),
    "no-square-in-l1": KnownIssue("its Square attack does nothing in l1", ("l1",)),
    "any-class-is-target": KnownIssue(
        "linf: inverts its success test for targeted attacks, so every class except the target counts as a success",
        ("linf",),
    ),
    "truncates-levels": KnownIssue(
        "truncates values to whole 8-bit levels, so results may be up to 1/255 beyond the radius"
    ),
    "step-alone": KnownIssue(
        "keeps a step only if this single step makes the image adversarial, so steps that would succeed together "
        "are discarded"
    ),
    "gradient-overflow": KnownIssue("stops with an error if a component of the gradient is above 0.24 in size"),
}
