"""Writes the generated pages of the site, which are not in git."""

import inspect
import re
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import attack_pages
import capabilities
import command_page
import metric_pages
import notebooks
import reference_pages
import reproduction_page
from page_parts import ORPHAN

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
FACES = {
    "davylamp": "Functions for scripts and notebooks: one for each command.",
    "davylamp.adapters": "Classifiers, threat models, one attack.",
    "davylamp.engine": "Plans, results folders, tables.",
    "davylamp.metrics": "Every metric as a function.",
    "davylamp.scoring": "Rankings.",
}


def write_all(folder: Path) -> None:
    """Write the generated pages into a folder. Unchanged pages are not touched, so that Sphinx skips them."""
    made = {
        **attack_pages.render_all(),
        **metric_pages.render_all(),
        **reference_pages.render_all(),
        "commands.md": command_page.render(),
        "reproductions.md": reproduction_page.render(),
        "paper-coverage.md": capabilities.render(),
        **_faces(),
        **notebooks.render_all(DOCS / "tutorials"),
        **_neighbours(),
    }
    for name, text in made.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in folder.rglob("*"):
        if path.is_file() and path.relative_to(folder).as_posix() not in made:
            path.unlink()


def _faces() -> dict[str, str]:
    """Render an API page for each public package. A name in two packages is described on the first page only."""
    described: dict[int, str] = {}
    pages = {}
    for name, text in FACES.items():
        module, parts, elsewhere = import_module(name), [], []
        for public in sorted(module.__all__):
            thing = getattr(module, public)
            if described.setdefault(id(thing), name) != name:
                elsewhere.append(f"`{public}` ([{described[id(thing)]}]({described[id(thing)]}.md))")
            else:
                parts.append(_directive(f"{name}.{public}", thing))
        also = f"Also here: {', '.join(elsewhere)}.\n\n" if elsewhere else ""
        pages[f"api/{name}.md"] = f"# `{name}`\n\n{text}\n\n{also}```{{eval-rst}}\n" + "\n".join(parts) + "\n```\n"
    return pages


def _directive(name: str, thing: Any) -> str:
    if inspect.isclass(thing):
        record = issubclass(thing, tuple) or is_dataclass(thing)
        return f".. autoclass:: {name}\n" + ("" if record else "   :members:\n")
    if callable(thing):
        return f".. autofunction:: {name}\n"
    return f".. py:data:: {name}\n\n   A {type(thing).__name__}.\n"


def _neighbours() -> dict[str, str]:
    """Return the Markdown files outside docs/ that pages link to, by path."""
    files: dict[str, str] = {}
    waiting = [*DOCS.glob("*.md"), *(DOCS / "tutorials").glob("*.md")]
    while waiting:
        page = waiting.pop()
        for target in re.findall(r"\]\(([\w./-]+\.md)\)", page.read_text(encoding="utf-8")):
            path = (page.parent / target).resolve()
            name = path.relative_to(ROOT).as_posix()
            if not path.is_relative_to(DOCS) and f"files/{name}" not in files and path.exists():
                files[f"files/{name}"] = ORPHAN + path.read_text(encoding="utf-8")
                waiting.append(path)
    return files


def mend_links(app, document: str, source: list[str]) -> None:
    """Correct the links of a page whose location on the site differs from its location in the repository."""
    if document.startswith("generated/files/"):
        home = (ROOT / document.removeprefix("generated/files/")).parent
    else:
        home = (DOCS / document).parent
    here = (DOCS / document).parent

    def mended(match: re.Match[str]) -> str:
        path = (home / match[2]).resolve()
        if path.is_relative_to(DOCS):
            return f"{match[1]}({_relative(path, here)})"
        name = path.relative_to(ROOT).as_posix()
        if path.suffix == ".md":
            return f"{match[1]}({_relative(DOCS / 'generated' / 'files' / name, here)})"
        return f"{match[1][1:-1] if match[1].startswith('[') else match[1]} (`{name}`)"

    source[0] = re.sub(r"(\[[^\[\]]*\])\((?!https?:|#)([\w./-]+)\)", mended, source[0])


def _relative(path: Path, here: Path) -> str:
    steps = len(here.relative_to(DOCS).parts)
    return "../" * steps + path.relative_to(DOCS).as_posix()
