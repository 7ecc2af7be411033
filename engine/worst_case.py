"""`worst-case(A,B,...)`: attacks one after the other, each on the images that none before it has fooled."""

from collections.abc import Sequence

from ..adapters import Attack, Implementation, attack_of
from ..adapters.attack import Knowledge
from ..adapters.threat_model import NORMS

VERSION = "1"  # of what is made of several attacks: part of a cell's key, raised whenever that would be something else
_KNOWLEDGE: tuple[Knowledge, ...] = ("white-box", "score-based", "decision-based")  # ever less


def worst_case_row(rows: Sequence[Implementation]) -> Implementation:
    """A row that stands for attacks that run one after the other: it has the norms that all of them have."""
    known = [attack_of(row) for row in rows]
    joined = ",".join(row.name for row in rows)
    title = f"Worst case of {', '.join(dict.fromkeys(attack.title for attack in known))}"
    asked = {attack.knowledge for attack in known}
    knowledge: Knowledge = next(each for each in _KNOWLEDGE if each in asked)
    return Implementation(
        joined,
        "davylamp",
        classes=dict.fromkeys((norm for norm in NORMS if all(norm in row.classes for row in rows)), ""),
        targeted="no" if any(row.targeted == "no" for row in rows) else "yes",
        random=tuple(dict.fromkeys(source for row in rows for source in row.random)),
        findings=tuple(dict.fromkeys(finding for row in rows for finding in row.findings)),
        described=Attack(joined, title, "fixed-budget", knowledge, "davylamp"),
    )
