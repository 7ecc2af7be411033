"""The tutorials: the cell that prepares a machine for each, and the notebooks that the site offers for download."""

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
    """The pages whose cells the build executes."""
    return [page for page in sorted(folder.glob("*.md")) if _EXECUTED in page.read_text(encoding="utf-8")]


def render_all(folder: Path) -> dict[str, str]:
    """Notebooks by name, one for each executed page."""
    pages = executed(folder)
    return {f"notebooks/{page.stem}.ipynb": convert(page.read_text(encoding="utf-8")) for page in pages}


def convert(text: str) -> str:
    """The notebook of a page: links become their text, and the names of cells depend on nothing but their place."""
    kept = re.sub(r"As a notebook:\s\{download\}`[^`]+`\.\s?", "", text)
    kept = re.sub(r"(?<!!)\[([^\]\n]+)\]\((?!https?:)[^)\n]+\)|\{doc\}`([^<`]+?) <[^>`]+>`", r"\1\2", kept)
    notebook = jupytext.reads(add_setup(kept), fmt="md:myst")
    for place, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{place}"
    return jupytext.writes(notebook, fmt="ipynb")


def add_setup(text: str) -> str:
    """An executed page with the cell that prepares the machine in front; any other page as it is."""
    if _EXECUTED not in text:
        return text
    _, head, body = re.split(r"^---$", text, maxsplit=2, flags=re.MULTILINE)
    return f"---{head}---\n\n{SETUP}{body}"
