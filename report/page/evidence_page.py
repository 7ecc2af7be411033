"""HTML page with the evidence about a model's robustness."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...engine.checks.evidence_topics import TITLES
from ..parts.blocks import Section, Text, badge, make_table
from .build import render

_BADGES = {"measured": "pass", "partly measured": "warn", "not measured": "unknown", "outside davylamp": "unknown"}


def evidence_page(headline: str, rows: Sequence[Mapping[str, str]], notes: Sequence[str], source: str) -> str:
    """Return an HTML page of the evidence about a model: notes, and a section for each document.

    Args:
        headline: number of covered topics, in words.
        rows: one record per topic.
        notes: sentences at the top of the page.
        source: path of the results folder.
    """
    first = Section("evidence", "Robustness evidence", headline, tuple(Text(note, "note") for note in notes))
    sections: list[Any] = [first]
    for place, document in enumerate(dict.fromkeys(row["document"] for row in rows)):
        cells = [
            (
                row["place"],
                row["topic"],
                badge(_BADGES[row["state"]], row["state"]),
                row["evidence"] or "-",
                row["next"],
            )
            for row in rows
            if row["document"] == document
        ]
        table = make_table(
            f"evidence-{place}", TITLES[document], ("place", "topic", "state", "evidence", "next"), cells
        )
        sections.append(Section(f"document-{place}", document, "", (table,)))
    return render("Robustness evidence", sections, source=source)
