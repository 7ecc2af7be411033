"""Building blocks of generated pages."""

import inspect
from collections.abc import Iterable, Sequence

ORPHAN = "---\norphan: true\n---\n\n"  # in no table of contents: an index lists it, and the sidebar stays short


def prose(text: str) -> str:
    """Remove the indentation of Markdown paragraphs, and add an empty line."""
    return inspect.cleandoc(text) + "\n\n"


def index_entries(names: Iterable[str]) -> str:
    """Render index entries, which put a page first in a search for one of the names."""
    return "".join(f"```{{index}} ! single: {name}\n```\n\n" for name in dict.fromkeys(names))


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Render a Markdown table. Vertical bars in cells are escaped."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += [
        "| " + " | ".join(str(cell).replace("|", r"\|").replace("\n", " ") for cell in row) + " |" for row in rows
    ]
    return "\n".join(lines) + "\n"
