"""Known issues of pyautoattack 0.2 (the authors' code), each reproduced. The implementations run as shipped."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "first-class-taken": KnownIssue(
        "tries the next class only for images not yet fooled within epsilon: without an epsilon the first class "
        "reached counts, not the nearest"
    ),
}
