"""What can be checked from the papers alone: their tables against each other, their text and their equations."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from rich.console import Console

from ...report.text.console import print_table
from ..reproductions import PAPERS
from .paper_table import Options


def check_papers(published: str, options: Options) -> dict[str, Any]:  # noqa: ARG001 - there is nothing to choose
    """Every check of every paper, as `PAPER/checks.py` lists them.

    Args:
        published: changes nothing: every check names its tables.
        options: change nothing: no model is run and nothing is drawn.

    Returns:
        "checks", each with paper, statement, printed, computed, allowed, holds, note; "held" and "failed", counts.
    """
    modules = [import_module(f"..{paper}.checks", __package__) for paper in PAPERS]
    checks = [check for module in modules for function in module.CHECKS for check in function()]
    lines = [{**check._asdict(), "holds": check.holds} for check in checks]
    return {"checks": lines, "held": sum(check.holds for check in checks), "failed": sum(not c.holds for c in checks)}


def print_result(result: Mapping[str, Any], console: Console) -> None:
    """Print the checks, those that fail last, with what is known about them.

    Args:
        result: of `check_papers`.
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
