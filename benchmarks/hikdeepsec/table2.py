"""HikDeep-Sec, Table 2 (Zhang et al. 2023): an adversarially trained model under three attacks, SVHN.

Run: davylamp reproduce hikdeepsec-table2 [--quick] [--models NAME] [--data NAME] [--limit N] [--json]
"""

from typing import Any

from ..shared.reproduction import Options, print_result
from .setting import compare_defence

__all__ = ["print_result", "run"]


def run(**options: Any) -> dict[str, Any]:
    """Run the attacks on the undefended model and both models on their examples, beside Table 2.

    Args:
        **options: those of `reproduction.Options`.
    """
    return compare_defence("hikdeepsec_table2", "SVHN", Options(**options))
