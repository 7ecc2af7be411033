"""Results folders whose truth is known, and the page that is made of one."""

from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import pytest

from davylamp.report.page.build import build_report
from davylamp.tools.speed.synthetic_results import write_results

ATTACKS = ("art:pgd", "foolbox:pgd", "torchattacks:pgd", "foolbox:deepfool", "torchattacks:deepfool")
EVIL = "<img src=x onerror=alert(1)>\"'&$a$ </script><script>alert(2)</script>"


class Cell(NamedTuple):
    """A cell of a table on a page."""

    text: str
    attributes: dict[str, str | None]

    @property
    def value(self) -> float | None:
        return float(self.attributes["data-v"]) if self.attributes.get("data-v") else None


class Page(HTMLParser):
    """The tables of a page by id: headings and rows; and every element that it has."""

    def __init__(self, text: str):
        super().__init__()
        self.heads: dict[str, list[str]] = {}
        self.rows: dict[str, list[list[Cell]]] = {}
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._table = ""
        self._open: tuple[str, dict[str, str | None], list[str]] | None = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if tag == "div" and (attributes.get("class") or "").split()[:1] == ["table"]:
            self._table = attributes["id"] or ""
            self.heads[self._table], self.rows[self._table] = [], []
        elif tag == "tr" and self._table:
            self.rows[self._table].append([])
        elif tag in ("th", "td"):
            self._open = (tag, attributes, [])

    def handle_endtag(self, tag):
        if tag in ("th", "td") and self._open is not None:
            _, attributes, texts = self._open
            cell = Cell("".join(texts).strip(), attributes)
            if attributes.get("scope") == "col":
                self.heads[self._table].append(cell.text)
            else:
                self.rows[self._table][-1].append(cell)
            self._open = None

    def handle_data(self, data):
        self.texts.append(data)
        if self._open is not None:
            self._open[2].append(data)

    def table(self, name: str) -> list[dict[str, Cell]]:
        return [dict(zip(self.heads[name], row, strict=True)) for row in self.rows[name] if row]


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("synthetic") / "results"
    write_results(path, attacks=ATTACKS, images=40, classes=10, side=128, seed=4)
    return path


@pytest.fixture(autouse=True)
def _few_draws(few_draws):
    """Pages show rankings; how good those are is tested in tests/scoring."""


@pytest.fixture(scope="session")
def text(folder, with_few_draws) -> str:
    with with_few_draws():
        return build_report(folder, bootstrap=200)


@pytest.fixture(scope="session")
def read_page() -> type[Page]:
    return Page


@pytest.fixture(scope="session")
def evil() -> str:
    return EVIL


@pytest.fixture(scope="session")
def page(text) -> Page:
    return Page(text)


@pytest.fixture(scope="session")
def evil_folder(tmp_path_factory) -> Path:
    """Names of models, data and images that try to become HTML."""
    path = tmp_path_factory.mktemp("evil") / "<b>results"
    write_results(
        path, models=(EVIL, "b"), attacks=ATTACKS[:3], images=12, classes=5, image=EVIL.replace("/", ""), side=32
    )
    return path


@pytest.fixture(scope="session")
def evil_text(evil_folder, with_few_draws) -> str:
    with with_few_draws():
        return build_report(evil_folder, bootstrap=20)
