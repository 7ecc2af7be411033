"""Converts executed tutorials to notebooks for download, with a cell that installs what they need."""

import re
from pathlib import Path

import jupytext

_EXECUTED = "file_format: mystnb"
SETUP = """```{code-cell} python
:tags: [remove-cell]

import importlib.util
import os

if importlib.util.find_spec("davylamp") is None:  # for example on Colab
    %pip install --quiet "davylamp[demo,foolbox,pyautoattack,plot]"
    %pip install --quiet --no-deps torchattacks torchattack cleverhans six
os.environ.pop("FORCE_COLOR", None)  # commands print plain lines
os.environ["COLUMNS"] = "80"
```
"""


def executed(folder: Path) -> list[Path]:
    """Return the pages whose cells the build executes."""
    return [page for page in sorted(folder.glob("*.md")) if _EXECUTED in page.read_text(encoding="utf-8")]


def render_all(folder: Path) -> dict[str, str]:
    """Return a notebook for each executed page, by name."""
    pages = executed(folder)
    return {f"notebooks/{page.stem}.ipynb": convert(page.read_text(encoding="utf-8")) for page in pages}


def convert(text: str) -> str:
    """Convert a page to a notebook. Links become their text, and the names of cells depend only on their position."""
    kept = re.sub(r"As a notebook:\s\{download\}`[^`]+`\.\s?", "", text)
    kept = re.sub(r"(?<!!)\[([^\[\]]+)\]\((?!https?:)[^)\n]+\)|\{doc\}`([^<`]+?) <[^>`]+>`", r"\1\2", kept)
    notebook = jupytext.reads(add_setup(kept), fmt="md:myst")
    for place, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{place}"
    return jupytext.writes(notebook, fmt="ipynb")


def add_setup(text: str) -> str:
    """Add the installation cell at the start of an executed page. Other pages are unchanged."""
    if _EXECUTED not in text:
        return text
    _, head, body = re.split(r"^---$", text, maxsplit=2, flags=re.MULTILINE)
    return f"---{head}---\n\n{SETUP}{body}"
