"""What is known of davylamp's attacks: defects of the methods themselves, which are kept."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "untrained-alone": KnownIssue(
        "called without what it has learned, it searches the embedding of networks that are not trained; `davylamp "
        "evaluate` trains them first, by default on the images that are scored"
    ),
    "negatives-of-the-batch": KnownIssue(
        "as in its paper, the images of a batch are each other's negatives: what an image gets depends on its batch, "
        "and alone it is its own negative"
    ),
}
