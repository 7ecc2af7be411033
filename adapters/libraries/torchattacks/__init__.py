"""Library definition of torchattacks."""

from ..library import Library
from .attacks import ROWS
from .findings import FINDINGS

LIBRARY = Library(
    "torchattacks",
    module="torchattacks",
    distribution="torchattacks",
    # It pins requests to 2.25, which its attacks never import; the extra `torchattacks` accepts that pin.
    command="pip install --no-deps torchattacks",
    attacks=ROWS,
    driver=".driver:run",
    refuses=".driver:refuses",
    package=__name__,
    findings=FINDINGS,
    preload=("torchattacks",),
)
