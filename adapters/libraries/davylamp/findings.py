"""What is known of davylamp's attacks: defects of the methods themselves, which are kept."""

from collections.abc import Mapping

from ..library import Finding

FINDINGS: Mapping[str, Finding] = {
    "negatives-of-the-batch": Finding(
        "as in its paper, the images of a batch are each other's negatives: what an image gets depends on its batch, "
        "and alone it is its own negative"
    ),
}
