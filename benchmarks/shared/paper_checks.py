"""What can be checked from the papers alone: their tables against each other, their text and their equations.

Run: davylamp reproduce checks [--json]
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import Console

from ...report.text.console import print_table
from ..canary.checks import check_canary
from .check import PaperCheck
from .other_checks import check_aisafety, check_fooling, check_hikdeepsec, check_robic

CHECKS: tuple[Callable[[], Iterator[PaperCheck]], ...] = (
    check_canary,
    check_aisafety,
    check_fooling,
    check_robic,
    check_hikdeepsec,
)


def run(*, quick: bool = False, seed: int = 0) -> dict[str, Any]:  # noqa: ARG001 - the contract of reproductions
    """Every check.

    Args:
        quick: changes nothing: there is nothing to wait for.
        seed: changes nothing: nothing is drawn.

    Returns:
        "checks", each with paper, statement, printed, computed, allowed, holds, note; "held" and "failed", counts.
    """
    found = [check for checks in CHECKS for check in checks()]
    lines = [{**check._asdict(), "holds": check.holds} for check in found]
    return {"checks": lines, "held": sum(check.holds for check in found), "failed": sum(not c.holds for c in found)}


def print_result(result: Mapping[str, Any], console: Console) -> None:
    """Print the checks, those that fail last, with what is known about them.

    Args:
        result: of `run`.
        console: to print on.
    """
    columns = ("paper", "statement", "printed", "computed", "rounding", "holds")
    lines = sorted(result["checks"], key=lambda line: not line["holds"])
    rows = [
        [
            *(line[name] for name in ("paper", "statement")),
            *map(_number, (line["printed"], line["computed"])),
            f"{line['allowed']:.1g}",
            line["holds"],
        ]
        for line in lines
    ]
    print_table(f"{result['held']} statements hold, {result['failed']} do not", columns, rows, console)
    for note in dict.fromkeys(
        f"{line['paper']}: {line['note']}" for line in lines if line["note"] and not line["holds"]
    ):
        console.print(f"- {note}", highlight=False, markup=False)


def _number(value: float) -> str:
    return f"{value:.5g}"
