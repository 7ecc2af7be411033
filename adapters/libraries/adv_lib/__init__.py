"""Library definition of adversarial-library (adv-lib)."""

from ..library import Library
from .attacks import ROWS
from .findings import FINDINGS

LIBRARY = Library(
    "adv-lib",
    module="adv_lib",
    distribution="adv-lib",
    # It requires visdom for plots, which has no wheel and cannot be built by setuptools >= 81.
    command="pip install --no-deps adv-lib",
    attacks=ROWS,
    driver=".driver:run",
    refuses=".driver:refuses",
    package=__name__,
    findings=FINDINGS,
    preload=("davylamp.adapters.libraries.adv_lib.functions",),
)
