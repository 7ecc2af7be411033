"""Output of the evidence about a model's robustness: terminal table, and Markdown for a model card."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...engine.checks.evidence_topics import TITLES
from .console import PlainConsole, print_notes, print_table
from .tables import markdown_text

_COLUMNS = ("document", "place", "topic", "state", "evidence", "next")


def print_evidence(result: Any, console: PlainConsole) -> None:
    """Print the number of covered topics, a table of measurements with the topics that they support, and notes.

    Args:
        result: result of `davylamp.evidence`.
        console: output console. If verbose, the table has a row for each topic instead of each measurement.
    """
    console.print(result.headline)
    if console.verbose:
        cells = [[row[name] or "-" for name in _COLUMNS] for row in result.rows]
        print_table("", _COLUMNS, cells, console, keys=3, rest="blocks")
    else:
        heads = ("measurement", "result", "next", "evidence for")
        cells = [
            [
                each["measurement"],
                each["result"] or "not measured",
                each["next"] or "-",
                "; ".join(each["evidence for"]),
            ]
            for each in result.document["measurements"]
        ]
        print_table("", heads, cells, console, rest="blocks")
    print_notes(result.notes, console)


def evidence_markdown(headline: str, rows: Sequence[Mapping[str, str]], notes: Sequence[str]) -> str:
    """Return a Markdown section for a model card: headline, one table per document, and notes.

    Args:
        headline: number of covered topics, in words.
        rows: one record per topic.
        notes: sentences below the tables.
    """
    parts = ["## Robustness evidence", "", markdown_text(headline), ""]
    columns = ("place", "topic", "state", "evidence")
    for document in dict.fromkeys(row["document"] for row in rows):
        cells = [[row[name] or "-" for name in columns] for row in rows if row["document"] == document]
        parts += [f"### {markdown_text(TITLES[document])}", ""]
        parts += [f"| {' | '.join(map(markdown_text, line))} |" for line in (columns, ["---"] * len(columns), *cells)]
        parts.append("")
    return "\n".join([*parts, *(f"- {markdown_text(note)}" for note in notes)]) + "\n"
