"""Known issues of davylamp's own attacks. They are properties of the published methods, and are not corrected."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "untrained-alone": KnownIssue(
        "without fitted weights, it searches the embedding of untrained networks; `davylamp evaluate` fits weights "
        "first, by default on the evaluation images"
    ),
    "negatives-of-the-batch": KnownIssue(
        "uses the other images of the batch as negatives, as in its paper, so the result for an image depends on its "
        "batch, and a single image is its own negative"
    ),
}
