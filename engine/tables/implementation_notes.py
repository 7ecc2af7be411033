"""Facts from the catalogue about the implementations that were run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...adapters import canonical_attack
from ...adapters.catalogue.known_issues import FINDINGS, known_issues_of
from ...adapters.catalogue.lookup import library_defaults
from ...errors import MissingLibrary, UnknownName, Unsupported
from ..attack_run import AttackRun


@dataclass(frozen=True)
class About:
    """Facts about an implementation under one norm.

    Args:
        title: title of the attack.
        kind: "fixed-budget" or "minimum-norm".
        knowledge: "white-box", "score-based" or "decision-based".
        source: paper of the attack.
        findings: known issues of the implementation, by id.
        repairs: patches that let the implementation run on current NumPy and PyTorch.
        defaults: defaults of the library, by canonical parameter. Empty if the library or the implementation is not
            installed.
    """

    title: str
    kind: str
    knowledge: str
    source: str
    findings: Mapping[str, str]
    repairs: tuple[str, ...]
    defaults: Mapping[str, Any]


def about_cells(cells: Iterable[AttackRun]) -> dict[tuple[str, str], About]:
    """Return facts about the implementations of runs, by name ("foolbox:pgd" or "best(foolbox:pgd)") and norm."""
    notes: dict[tuple[str, str], About] = {}
    for cell in cells:
        key = (cell.attack, cell.threat_model.norm)
        if key not in notes:
            notes[key] = _about(cell)
    return notes


def _about(cell: AttackRun) -> About:
    row, norm = cell.row, cell.threat_model.norm
    attack = canonical_attack(row)
    try:
        defaults = library_defaults(row, norm)
    except (MissingLibrary, UnknownName, Unsupported):
        defaults = {}
    kind = cell.search.attack_kind(cell.row)
    findings = {key: FINDINGS[key] for key in known_issues_of(row, norm)}
    return About(attack.title, kind, attack.knowledge, attack.source, findings, tuple(row.repairs), defaults)
