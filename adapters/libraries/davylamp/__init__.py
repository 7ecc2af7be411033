"""Published attacks that no supported library has, implemented by davylamp itself."""

from ..library import Library
from .attacks import ROWS
from .findings import FINDINGS

LIBRARY = Library(
    "davylamp",
    module="davylamp",
    distribution="davylamp",
    attacks=ROWS,
    driver=".driver:run",
    refuses=".driver:refuses",
    package=__name__,
    findings=FINDINGS,
)
