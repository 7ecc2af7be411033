"""AISafety, Table IX (Liu, Guo et al.): visibility of adversarial test sets.

Run: davylamp reproduce aisafety-table9 [--quick | --full] [--models NAME] [--data NAME] [--limit N] [--json]
"""

from typing import Any

from ..shared.reproduction import Options, print_result
from .imperceptibility import compare_imperceptibility

__all__ = ["print_result", "run"]


def run(**options: Any) -> dict[str, Any]:
    """Measure the imperceptibility of adversarial test sets beside Table IX.

    Args:
        **options: those of `reproduction.Options`.
    """
    return compare_imperceptibility("aisafety_table9", "SVHN", Options(**options))
