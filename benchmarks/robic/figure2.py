"""RoBIC, Figure 2 (Maho et al. 2021): half-distortion of white-box attacks against their iterations.

Run: davylamp reproduce robic-figure2 [--quick | --full] [--models NAME] [--data NAME] [--limit N] [--json]
"""

from typing import Any

from ..shared.reproduction import Options, print_result
from .setting import compare_budgets

__all__ = ["print_result", "run"]
_STEPS = {"quick": (2, 4), "default": (5, 10, 20), "full": (10, 20, 50, 100, 200)}


def run(**options: Any) -> dict[str, Any]:
    """Run PGD in the best-effort mode and C&W with growing numbers of steps.

    Args:
        **options: those of `reproduction.Options`.
    """
    return compare_budgets("2", ("best(foolbox:pgd)", "foolbox:cw"), "steps", _STEPS, Options(**options), images=8)
