"""Library definition of SecML-Torch."""

from ..library import Library
from .attacks import ROWS
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
    preload=("davylamp.adapters.libraries.secml_torch.native_attacks",),
)
