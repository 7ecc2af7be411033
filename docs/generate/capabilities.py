"""Renders the page of the five papers' capabilities, with command, state and test, from docs/capabilities/."""

import csv
from collections import Counter
from pathlib import Path

from page_parts import prose, table
from reproduction_page import TITLES

FOLDER = Path(__file__).parents[1] / "capabilities"
COLUMNS = ("capability", "command", "state", "test", "note")
STATES = {  # state -> what it means
    "works": "done; the test that runs it is named",
    "your data": "works, but needs weights or images that no package ships; the code that loads them is there",
    "decided": "not done, for the reason given",
}


def load_all() -> dict[str, list[dict[str, str]]]:
    """Return the table rows of each paper that has a file, by paper.

    Raises:
        ValueError: If a file has other columns, or a row has a wrong number of cells.
    """
    return {paper: load(FOLDER / f"{paper}.tsv") for paper in TITLES if (FOLDER / f"{paper}.tsv").exists()}


def load(path: Path) -> list[dict[str, str]]:
    """Return the rows of a file of tab-separated columns. Quotation marks have no special meaning."""
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    if tuple(header) != COLUMNS:
        raise ValueError(f"{path.name}: expected the columns {', '.join(COLUMNS)}, got {', '.join(header)}")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(COLUMNS):
            raise ValueError(f"{path.name}, line {number}: expected {len(COLUMNS)} cells, got {len(row)}")
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def split(cell: str) -> list[str]:
    """Split a cell into its commands or tests, which are separated by "; "."""
    return [part for part in cell.split("; ") if part]


def render() -> str:
    """Render the page."""
    papers = load_all()
    text = prose("""
        # What the papers have

        Every capability of the five papers that davylamp takes its methods from, the command for it, and the test that
        runs it. A table or figure that is computed again is listed in [Reproductions](reproductions.md), too. Words in
        capitals stand for models, files and folders of yours.
    """)
    text += table(["state", "meaning"], list(STATES.items())) + "\n"
    counts = {paper: Counter(row["state"] for row in rows) for paper, rows in papers.items()}
    lines = [[TITLES[paper], len(rows), *(counts[paper][state] for state in STATES)] for paper, rows in papers.items()]
    total = sum(counts.values(), Counter())
    lines.append(["all", total.total(), *(total[state] for state in STATES)])
    text += table(["paper", "capabilities", *STATES], lines)
    for paper, rows in papers.items():
        cells = [[row["capability"], _literal(row["command"]), row["state"], _evidence(row)] for row in rows]
        text += f"\n## {TITLES[paper]}\n\n" + table(["capability", "command", "state", "test; note"], cells)
    return text


def _literal(cell: str) -> str:
    return "<br>".join(f"`{part}`" for part in split(cell))


def _evidence(row: dict[str, str]) -> str:
    return "<br>".join(part for part in (_literal(row["test"]), row["note"]) if part)
