"""Pieces of a page."""

import inspect
from collections.abc import Iterable, Sequence

ORPHAN = "---\norphan: true\n---\n\n"  # in no table of contents: an index lists it, and the sidebar stays short


def prose(text: str) -> str:
    """Paragraphs, indented as the code around them, as Markdown; an empty line follows."""
    return inspect.cleandoc(text) + "\n\n"


def index_entries(names: Iterable[str]) -> str:
    """Entries of the site's index: a search for one of the names leads to this page first."""
    return "".join(f"```{{index}} ! single: {name}\n```\n\n" for name in dict.fromkeys(names))


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; bars in cells are escaped."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += [
        "| " + " | ".join(str(cell).replace("|", r"\|").replace("\n", " ") for cell in row) + " |" for row in rows
    ]
    return "\n".join(lines) + "\n"
