"""Library definition of SecML-Torch."""

from ..library import Library
from .attacks import REQUIRED, ROWS
from .findings import FINDINGS

LIBRARY = Library(
    "secml-torch",
    module="secmlt",
    distribution="secml-torch",
    extra="secml-torch",
    attacks=ROWS,
    driver=".driver:run",
    package=__name__,
    findings=FINDINGS,
    open_defaults=REQUIRED,
    preload=("davylamp.adapters.libraries.secml_torch.native_attacks",),
)
