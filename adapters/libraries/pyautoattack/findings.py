"""Known issues of pyautoattack 0.2 (the authors' code). A test shows each issue. davylamp runs the code unchanged."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "first-class-taken": KnownIssue(
        "targets further classes only for images without an example within epsilon. Without an epsilon, it "
        "therefore returns the example for the first class that it reaches, instead of the nearest example"
    ),
}
