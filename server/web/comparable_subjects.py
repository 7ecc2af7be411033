"""Selects the models, attacks or defences (subjects) of a leaderboard that have enough results in common.

A ranking uses only the items on which all subjects have results. Without the selection, a single subject with unusual
items could leave no common items.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping

from ...adapters.display_text import format_radius
from ..database.records import CellRow

UNDEFENDED = "none"  # baseline among defences


def choose_comparable(met: Mapping[str, Collection[Hashable]], always: Collection[str] = ()) -> set[str]:
    """Choose the subjects of a leaderboard so that the number of results on common items is as large as possible.

    The search starts with all subjects. In each step, it removes the subject that shares the fewest results with the
    other subjects. Of all sets of subjects in this search, the set with the largest product of subjects and common
    items is returned. If two sets are equal in this number, the set with more subjects is returned.

    Args:
        met: items on which a subject has results, by name of the subject.
        always: name of a subject that is never removed. Empty if every subject may be removed.

    Returns:
        Names of at least two subjects with common items. If no two subjects have common items, the names of all
        subjects.
    """
    kept = {name: set(each) for name, each in met.items()}
    for name in kept.keys() & set(always):
        kept = {other: items & kept[name] for other, items in kept.items()}
    counts = Counter(item for each in kept.values() for item in each)
    best, most = set(kept), _responses(kept, counts)
    while len(kept) > 2:
        leaving = min(kept.keys() - set(always), key=lambda name: (_shared(kept[name], counts), name))
        counts.subtract(kept.pop(leaving))
        if (responses := _responses(kept, counts)) > most:
            best, most = set(kept), responses
    return best


def comparable_cells(kind: str, rows: Iterable[CellRow]) -> tuple[list[CellRow], list[str]]:
    """Select the runs of comparable subjects for a leaderboard.

    Returns:
        The runs of the chosen subjects. Then the display names of the omitted subjects.
    """
    by_subject: dict[str, list[CellRow]] = {}
    rows = list(rows)
    for row in rows:
        by_subject.setdefault(_subject(kind, row), []).append(row)
    met = {name: [_item(kind, row) for row in each] for name, each in by_subject.items()}
    chosen = choose_comparable(met, [UNDEFENDED] if kind == "defences" else [])
    kept = [row for name in by_subject if name in chosen for row in by_subject[name]]
    bases = {row.model_id: row.model for row in rows if row.defence_id is None}
    odd = [each[0] for name, each in by_subject.items() if name not in chosen]
    return kept, list(dict.fromkeys(_label(kind, row, bases) for row in odd))


def _shared(items: set[Hashable], counts: "Counter[Hashable]") -> int:
    return sum(counts[item] - 1 for item in items)


def _responses(kept: Mapping[str, set[Hashable]], counts: "Counter[Hashable]") -> int:
    return len(kept) * sum(count == len(kept) for count in counts.values())


def _threat(row: CellRow) -> tuple[Hashable, ...]:
    return row.attack, row.norm, row.epsilon, row.targeted, row.parameters


def _subject(kind: str, row: CellRow) -> str:
    if kind == "attacks":
        return " ".join(map(str, _threat(row)))
    return row.model if kind == "models" else str(row.defence_id or UNDEFENDED)


def _label(kind: str, row: CellRow, bases: Mapping[int, str]) -> str:
    """Return the display name of the subject of a run. The name of a defence is its part of the model's name."""
    if kind == "attacks":
        radius = "" if row.epsilon is None else f" {format_radius(row.norm, row.epsilon)}"
        return f"{row.attack} {row.norm}{radius}{' targeted' if row.targeted else ''}"
    is_known = kind == "defences" and row.model_id in bases
    return row.model.removeprefix(f"{bases[row.model_id]}+") if is_known else row.model


def _item(kind: str, row: CellRow) -> Hashable:
    if kind == "attacks":
        return row.model_id, row.seed
    asked = (*_threat(row), row.terms, row.seed)
    return asked if kind == "models" else (row.model_id, *asked)
