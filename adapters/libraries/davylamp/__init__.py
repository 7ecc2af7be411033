"""davylamp's implementations of published attacks that are in none of the supported libraries."""

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
