"""Known defects of pyautoattack 0.2, and so of the authors' code, each seen and reproduced; the rows run as shipped."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "first-class-taken": KnownIssue(
        "goes on to the next class only for images that none has fooled within epsilon: without an epsilon the first "
        "class that is reached counts, not the nearest"
    ),
}
