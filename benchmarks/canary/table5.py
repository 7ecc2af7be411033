"""CANARY, Table 5 (Sun et al. 2023): what the attacks cost, mean over the models.

Run: davylamp reproduce canary-table5 [--quick | --full] [--models NAME] [--data NAME] [--limit N] [--json]
"""

from typing import Any

from ..shared.reproduction import Options, print_result
from .setting import compare_attacks

__all__ = ["print_result", "run"]
_SYMBOLS = ("CTC", "QNC_F", "QNC_B", "APCR", "AED", "AMD", "FDL", "FDH", "ADMS", "ALMS")


def run(**options: Any) -> dict[str, Any]:
    """Run CANARY's attacks, as far as a library has them, beside its Table 5.

    Args:
        **options: those of `reproduction.Options`.
    """
    return compare_attacks("canary_table5", _SYMBOLS, Options(**options))
