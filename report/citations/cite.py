"""Bibliographies in BibTeX for everything that an evaluation used. Comments name the uses and the missing entries."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ... import __version__
from ...adapters.catalogue.lookup import LIBRARIES
from ...engine.store.atomic_files import write_atomic
from .bibliography import BibEntry, entries_for, entries_named, software_entry
from .usage import CitedItem, davylamp_versions, items_used_in, used_by_name

_TITLES: Mapping[str, str] = {"training": "training by", "data": "data", "method": "method", "source": "results of"}
_ADVICE: Mapping[str, str] = {
    "data": "cite where the images come from",
    "model": "cite where the model comes from",
    "library": "cite the package",
    "attack": "cite its authors",
}


@dataclass(frozen=True, repr=False)
class Bibliography:
    """BibTeX entries for everything that results folders used, or for names.

    Args:
        entries: pairs of an entry and its uses, such as "attack pgd" or "library foolbox 3.3.4". davylamp comes first.
        missing: a message with advice for each use without an entry.
    """

    entries: tuple[tuple[BibEntry, tuple[str, ...]], ...]
    missing: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Bibliography as a BibTeX file. A comment above each entry names its uses.

        Comments at the end name missing entries.
        """
        blocks = [f"{_comment('; '.join(uses))}{entry.text}" for entry, uses in self.entries]
        lines = [_comment(f"no entry: {line}") for line in self.missing]
        return "\n".join([*blocks, *(["".join(lines)] if lines else [])])

    @property
    def keys(self) -> dict[str, tuple[str, ...]]:
        """Citation keys by use. For example, "attack pgd" has the keys ("madry2018towards",)."""
        keys: dict[str, tuple[str, ...]] = {}
        for entry, uses in self.entries:
            for use in uses:
                keys[use] = (*keys.get(use, ()), entry.key)
        return keys

    def write(self, path: str | Path) -> Path:
        """Write the bibliography as a BibTeX file, and return the path.

        Raises:
            Unavailable: If the file cannot be written.
        """
        return write_atomic(path, self.text)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Bibliography of {len(self.entries)} entries; {len(self.missing)} things have no entry; .text is BibTeX"


def cite(*what: str | Path) -> Bibliography:
    """Return BibTeX for everything that results folders used, or for names.

    Args:
        *what: results folders, or names of attacks, implementations ("foolbox:pgd"), libraries, metrics, defences,
            detectors, training methods, data or models. A name that is the path of an existing folder is read as a
            folder.

    Returns:
        The bibliography, with davylamp first and without duplicates.

    Raises:
        UnknownName: If a name is unknown.
        Unavailable: If a folder contains no results.
    """
    used: list[CitedItem] = []
    versions: set[str] = set()
    for each in what:
        if isinstance(each, Path) or Path(each).is_dir():
            used += items_used_in(each)
            versions |= set(davylamp_versions(each))
        elif each != "davylamp":
            used += used_by_name(each)
    return _collect(used, sorted(versions) or [__version__])


def cite_keys(used: Iterable[CitedItem]) -> tuple[str, ...]:
    """Return the citation keys of some items, without duplicates."""
    return tuple(dict.fromkeys(entry.key for each in used for entry in _entries_of(each)[0]))


def _collect(used: Iterable[CitedItem], versions: list[str]) -> Bibliography:
    uses: dict[BibEntry, list[str]] = {}
    missing: list[str] = []
    for each in dict.fromkeys(used):
        entries, lines = _entries_of(each)
        for entry in entries:
            uses.setdefault(entry, []).append(_title(each))
        missing += lines
    ours = software_entry(versions)
    listed = [(entry, tuple(dict.fromkeys(titles))) for entry, titles in uses.items()]
    return Bibliography(((ours, ("davylamp",)), *listed), tuple(dict.fromkeys(missing)))


def _entries_of(used: CitedItem) -> tuple[tuple[BibEntry, ...], list[str]]:
    title = _title(used)
    if used.kind == "metric" and used.source:
        named, unknown = entries_named(used.source)
        entries = tuple(dict.fromkeys((*named, *entries_for(used.kind, used.name))))
        return entries, [f"{title}: its source is {part}" for part in unknown]
    entries = entries_for(used.kind, used.name)
    if used.kind == "attack" and not entries:
        library = next((name for name in LIBRARIES if name == used.source.lower()), "")
        if library:
            return entries_for("library", library), [f"{title}: the attack has no paper, so {used.source} is cited"]
    if not entries:
        said = f"its source is {used.source}" if used.source else _ADVICE.get(used.kind, "no source is known")
        return (), [f"{title}: {said}"]
    return entries, _beside(used, entries)


def _beside(used: CitedItem, entries: tuple[BibEntry, ...]) -> list[str]:
    """Return advice for a model that has no entry of its own, if the model's collection has an entry."""
    collection = f"model:{used.name.partition(':')[0]}:*"
    if used.kind != "model" or len(entries) != 1 or collection not in entries[0].sources:
        return []
    return [f"{_title(used)}: {entries[0].key} cites the collection; the page of the model there names its paper"]


def _comment(text: str) -> str:
    """Format a text as a BibTeX comment. "@" is replaced, because BibTeX would read it as the beginning of an entry."""
    return f"% {' '.join(text.split()).replace('@', '(at)')}\n"


def _title(used: CitedItem) -> str:
    return " ".join(filter(None, (_TITLES.get(used.kind, used.kind), used.name, used.version)))
