"""Which subjects of a leaderboard met enough of the same to be ranked: one odd submission takes no board down."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping

from ...adapters.display_text import format_radius
from ..database.records import CellRow

UNDEFENDED = "none"  # among defences; every other one is held against it


def choose_comparable(met: Mapping[str, Collection[Hashable]], always: Collection[str] = ()) -> set[str]:
    """The subjects that are ranked: as many as can be on as much as can be that all of them met.

    From all subjects the one that keeps most from being common is left out, again and again; of these sets the one with
    the most responses (subjects x what all of them met) counts, of equal ones the larger.

    Args:
        met: what each subject has results of.
        always: at most one subject that is never left out; then only what it met can be common.

    Returns:
        At least two subjects with something in common; all of them where no two have anything.
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
    """The cells of the subjects that are ranked, and what a reader calls those that are left out."""
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
    """How often others met what a subject met."""
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
    """A subject in words; a defence as it stands behind the name of a model, whose undefended cells are its base."""
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
