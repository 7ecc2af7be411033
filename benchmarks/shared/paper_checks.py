"""Runs the checks whether the tables, text and equations of each paper agree with each other."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from rich.console import Console

from ...report.text.console import print_table
from ..reproductions import PAPERS
from .paper_table import Options


def check_papers(published: str, options: Options) -> dict[str, Any]:  # noqa: ARG001 - no options apply
    """Run the checks of all papers, which are defined in `PAPER/checks.py`.

    Args:
        published: ignored, because every check names its tables.
        options: ignored, because no model is run.

    Returns:
        A dictionary with these keys:

        - "checks": a dictionary for each check, with the fields of `PaperCheck` and "holds";
        - "held" and "failed": numbers of checks.
    """
    modules = [import_module(f"..{paper}.checks", __package__) for paper in PAPERS]
    checks = [check for module in modules for function in module.CHECKS for check in function()]
    lines = [{**check._asdict(), "holds": check.holds} for check in checks]
    return {"checks": lines, "held": sum(check.holds for check in checks), "failed": sum(not c.holds for c in checks)}


def print_result(result: Mapping[str, Any], console: Console) -> None:
    """Print the checks with their explanations. Failed checks come last.

    Args:
        result: result of `check_papers`.
        console: output console.
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
