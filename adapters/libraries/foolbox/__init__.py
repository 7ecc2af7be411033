"""Library definition of Foolbox."""

from ..library import Library
from .attacks import ROWS
from .findings import FINDINGS

LIBRARY = Library(
    "foolbox",
    module="foolbox",
    distribution="foolbox",
    extra="foolbox",
    attacks=ROWS,
    driver=".driver:run",
    package=__name__,
    findings=FINDINGS,
    preload=("foolbox",),
)
