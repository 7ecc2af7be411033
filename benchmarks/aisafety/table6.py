"""AISafety, Table VI (Liu, Guo et al.): neuron coverage of adversarial test sets.

Run: davylamp reproduce aisafety-table6 [--quick | --full] [--models NAME] [--data NAME] [--limit N] [--json]
"""

from typing import Any

from ..shared.reproduction import Options, print_result
from .coverage import compare_coverage

__all__ = ["print_result", "run"]


def run(**options: Any) -> dict[str, Any]:
    """Measure the coverage of adversarial test sets beside Table VI.

    Args:
        **options: those of `reproduction.Options`.
    """
    return compare_coverage("aisafety_table6", "CIFAR-10", Options(**options))
