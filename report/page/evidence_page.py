"""HTML page with the evidence on a model."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...engine.checks.evidence_topics import TITLES
from ..parts.blocks import Section, Text, badge, make_table
from .build import render

_BADGES = {"measured": "pass", "partly measured": "warn", "not measured": "unknown", "outside davylamp": "unknown"}


def evidence_page(headline: str, rows: Sequence[Mapping[str, str]], notes: Sequence[str], source: str) -> str:
    """Return an HTML page with a section per document, and the notes first."""
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
