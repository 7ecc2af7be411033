"""Library definition of torchattack. The library torchattacks is a different one."""

from ..library import Library
from .attacks import ROWS
from .findings import FINDINGS

LIBRARY = Library(
    "torchattack",
    module="torchattack",
    distribution="torchattack",
    extra="torchattack",
    attacks=ROWS,
    driver=".driver:run",
    refuses=".driver:refuses",
    package=__name__,
    findings=FINDINGS,
    open_defaults={"step_size": "1 epsilon / steps"},
    preload=("torchattack",),
)
