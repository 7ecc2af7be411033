"""Known issues of ART 1.20. A test shows each issue. davylamp runs the code unchanged."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "overshoot-at-the-end": KnownIssue(
        "tests for misclassification before it adds the overshoot, so it ends slightly farther from the image than "
        "implementations that test afterwards"
    ),
    "confidence-in-the-loss": KnownIssue(
        "linf: uses the confidence in the loss but not when selecting the result, so any misclassified image "
        "ends the search",
        ("linf",),
    ),
    "wrong-class-lookup": KnownIssue(
        "combines gradients with the logits of wrong classes if it computes fewer gradients than there are classes"
    ),
    "l2-divides": KnownIssue("in its l2 update, divides by a factor by which the paper multiplies", ("l2",)),
    "noise-brightens": KnownIssue("clips its noise to [0, 1], so pixels only get brighter"),
    "four-rounds": KnownIssue(
        "in l0, runs only four rounds, in which it freezes no pixel; in linf, omits the trade-off constant from the "
        "gradient",
        ("l0", "linf"),
    ),
    "one-transform": KnownIssue(
        "uses one transform for the whole batch, and computes the horizontal shift from the number of channels"
    ),
    "final-iterate": KnownIssue("checks success on the last iterate only, and returns the random start if that fails"),
    "doubling-constant": KnownIssue(
        "only doubles the trade-off constant in each round, so the constant stays small if there are few rounds",
        ("l2",),
    ),
    "clip-before-project": KnownIssue(
        "clips images to [0, 1] before it projects them onto the ball, whereas other libraries project first",
        ("l2", "l1"),
    ),
    "deepfool-for-fab": KnownIssue("contains DeepFool (with 10 gradients) instead of FAB"),
    "before-projection": KnownIssue(
        "returns the point before its last projection onto the decision boundary, which is farther from the image than "
        "its best point"
    ),
    "largest-gradients": KnownIssue(
        "selects the two components with the largest gradients of the target, instead of the best pair"
    ),
    "not-fixed-budget": KnownIssue("increases its radius during the attack"),
    "norm-1-is-2": KnownIssue("treats norm 1 as norm 2", ("l1",)),
    "stops-at-zero-loss": KnownIssue(
        "an untargeted attack stops as soon as all images of the call have zero loss, which may be so at the start"
    ),
    "sign-unused": KnownIssue(
        "linf: computes the sign of its direction but steps along the direction itself, so steps have almost no length",
        ("linf",),
    ),
    "batch-mean": KnownIssue("returns the iterate with the best mean over the batch"),
    "untargeted-ratio": KnownIssue(
        "a targeted attack still uses the ratio loss of the untargeted attack, and selects its smallest value"
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
        "keeps a step only if the image is then adversarial, so it discards steps that would succeed together"
    ),
    "gradient-overflow": KnownIssue("stops with an error if a component of the gradient is above 0.24 in size"),
}
