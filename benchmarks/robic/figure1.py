"""RoBIC, Figure 1 (Maho et al. 2021): half-distortion of black-box attacks against the budget of queries.

Run: davylamp reproduce robic-figure1 [--quick | --full] [--models NAME] [--data NAME] [--limit N] [--json]
"""

from typing import Any

from ..shared.reproduction import Options, print_result
from .setting import compare_budgets

__all__ = ["print_result", "run"]
_BUDGETS = {"quick": (15, 60), "default": (100, 300, 600), "full": (500, 1000, 2000, 3000, 5000)}


def run(**options: Any) -> dict[str, Any]:
    """Run the decision-based attacks that a library has with growing budgets.

    Args:
        **options: those of `reproduction.Options`.
    """
    attacks = ("art:geoda", "foolbox:hopskipjump")
    return compare_budgets("1", attacks, "max_queries", _BUDGETS, Options(**options), images=3)
