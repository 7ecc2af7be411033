"""Library definition of pyautoattack, a package of the authors' AutoAttack."""

from ..library import Library
from .attacks import ROWS
from .findings import FINDINGS

LIBRARY = Library(
    "pyautoattack",
    module="pyautoattack",
    distribution="pyautoattack",
    extra="pyautoattack",
    attacks=ROWS,
    driver=".driver:run",
    refuses=".driver:refuses",
    package=__name__,
    findings=FINDINGS,
    preload=("pyautoattack",),
)
