"""Known issues of davylamp's attacks: properties of the published methods, which are preserved."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "untrained-alone": KnownIssue(
        "called without fitted weights, it searches the embedding of untrained networks; `davylamp evaluate` fits them "
        "first, by default on the evaluation images"
    ),
    "negatives-of-the-batch": KnownIssue(
        "as in its paper, the images of a batch are each other's negatives: what an image gets depends on its batch, "
        "and alone it is its own negative"
    ),
}
