"""Known defects of pyautoattack 0.2, and so of the authors' code, each seen and reproduced; the rows run as shipped."""

from collections.abc import Mapping

from ..library import Finding

FINDINGS: Mapping[str, Finding] = {
    "first-class-taken": Finding(
        "goes on to the next class only for images that none has fooled within epsilon: without an epsilon the first "
        "class that is reached counts, not the nearest"
    ),
}
