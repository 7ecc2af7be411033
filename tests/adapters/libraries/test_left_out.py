"""Every attack class of the installed libraries has a row, or a line in docs/attacks-left-out.md."""

import inspect
import re
import warnings
from pathlib import Path

import pytest

from davylamp.adapters import IMPLEMENTATIONS
from davylamp.adapters.catalogue.lookup import load_class

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import art.attacks.evasion
    import foolbox.attacks
    import torchattack
    import torchattacks
    from foolbox.attacks.base import Attack as FoolboxAttack
    from torchattacks.attack import Attack as TorchAttack

PAGE = Path(__file__).parents[3] / "docs" / "attacks-left-out.md"
LIBRARIES = {
    "ART": ("art", art.attacks.evasion, object),
    "Foolbox": ("foolbox", foolbox.attacks, FoolboxAttack),
    "torchattacks": ("torchattacks", torchattacks, TorchAttack),
    "torchattack": ("torchattack", torchattack, torchattack.Attack),
}
FIRST = "Attacks that are fitted before they attack"


def sections() -> dict[str, list[str]]:
    """The lines of the page below each heading."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {title: text.splitlines() for title, text in zip(parts[::2], parts[1::2], strict=True)}


def classes_in(lines: list[str], column: int) -> set[str]:
    """The names in backticks in a column of a table."""
    cells = [line.split("|")[column] for line in lines if line.startswith("| ")]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def run_by_rows(library: str) -> set[str]:
    """The classes that rows of a library run, and those that a repaired class derives from."""
    rows = [row for row in IMPLEMENTATIONS.values() if row.library == library]
    loaded = [load_class(row, norm) for row in rows for norm in row.classes]
    kinds = [each for each in loaded if isinstance(each, type)]
    return {kind.__name__ for each in kinds for kind in each.__mro__}


@pytest.mark.parametrize("title", LIBRARIES)
def test_every_attack_class_has_a_row_or_a_reason(title):
    library, module, base = LIBRARIES[title]
    installed = {
        kind.__name__
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, base) and not inspect.isabstract(kind)
    }
    rows, reasons = run_by_rows(library), classes_in(sections()[title], 1)
    first = classes_in([line for line in sections()[FIRST] if line.startswith(f"| {title} |")], 2)
    assert len(installed) > 30
    assert installed - rows - reasons - first == set(), "neither a row nor a reason"
    assert reasons & rows == set(), "a reason for what has a row"
    assert (reasons | first) - installed == set(), "a reason for what is not there"
