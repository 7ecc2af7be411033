"""torchattacks."""

from ..library import Library
from .attacks import ROWS
from .findings import FINDINGS

LIBRARY = Library(
    "torchattacks",
    module="torchattacks",
    distribution="torchattacks",
    extra="torchattacks",
    attacks=ROWS,
    driver=".driver:run",
    refuses=".driver:refuses",
    package=__name__,
    findings=FINDINGS,
    preload=("torchattacks",),
)
