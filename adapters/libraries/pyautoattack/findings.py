"""Known issues of pyautoattack 0.2 (the authors' code), each reproduced. The implementations run as shipped."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "first-class-taken": KnownIssue(
        "targets the next class only if an image is not yet misclassified within epsilon. Without an epsilon, it "
        "therefore returns the first class that it reaches instead of the nearest"
    ),
}
