"""Library definition of CleverHans."""

from ..library import Library
from .attacks import REQUIRED, ROWS
from .findings import FINDINGS

LIBRARY = Library(
    "cleverhans",
    module="cleverhans",
    distribution="cleverhans",
    # It requires TensorFlow Probability and nose, which its attacks on PyTorch models never import.
    command="pip install --no-deps cleverhans six",
    attacks=ROWS,
    driver=".driver:run",
    refuses=".driver:refuses",
    package=__name__,
    findings=FINDINGS,
    open_defaults=REQUIRED,
    preload=("davylamp.adapters.libraries.cleverhans.functions",),
)
