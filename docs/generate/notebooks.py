"""The tutorials with Python as notebooks: the same page, a cell for each block."""

from pathlib import Path

import jupytext


def render_all(folder: Path) -> dict[str, str]:
    """Notebooks by name, of the pages that link to theirs."""
    made = {}
    for page in sorted(folder.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if f"{page.stem}.ipynb" in text:
            made[f"notebooks/{page.stem}.ipynb"] = convert(text)
    return made


def convert(text: str) -> str:
    """A notebook, with names of cells that depend on nothing but their place."""
    kept = "\n".join(line for line in text.splitlines() if ".ipynb" not in line)
    notebook = jupytext.reads(kept, fmt="md")
    for place, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{place}"
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return jupytext.writes(notebook, fmt="ipynb")
