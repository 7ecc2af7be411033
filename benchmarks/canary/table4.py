"""CANARY, Table 4 (Sun et al. 2023): what the attacks achieve, mean over the models.

Run: davylamp reproduce canary-table4 [--quick | --full] [--models NAME] [--data NAME] [--limit N] [--json]
"""

from typing import Any

from ..shared.reproduction import Options, print_result
from .setting import compare_attacks

__all__ = ["print_result", "run"]
_SYMBOLS = ("MR", "AIAC", "ARTC", "ACAMC_A", "ACAMC_T", "OTR")


def run(**options: Any) -> dict[str, Any]:
    """Run CANARY's attacks, as far as a library has them, beside its Table 4.

    Args:
        **options: those of `reproduction.Options`.
    """
    return compare_attacks("canary_table4", _SYMBOLS, Options(**options))
