"""Reads the entries of `references.bib`, and finds the entries to cite for an item such as an attack or a library."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

_FILE = Path(__file__).with_name("references.bib")
_BLOCK = re.compile(r"^@(\w+)\{([\w-]+),\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"  (\w+) = \{(.*)\},")
_YEAR = "2026"  # release year: author-year styles warn without it
_OURS = ("davylamp", "named")  # internal fields, not written to BibTeX


@dataclass(frozen=True, eq=False)
class BibEntry:
    r"""Entry of the bibliography.

    Args:
        kind: BibTeX type, such as "article" or "inproceedings".
        key: citation key, the argument of `\cite`. The key stays the same in all versions.
        fields: BibTeX fields by name, with LaTeX braces and accents.
        sources: items for which the entry is cited, by kind and name, such as "attack:pgd" or "library:foolbox". Names
            may be patterns, such as "model:timm:vit_*".
        named: name of the entry in `Metric.source`, such as "CANARY (Sun et al. 2023)". Empty if no metric cites the
            entry.
    """

    kind: str
    key: str
    fields: Mapping[str, str]
    sources: tuple[str, ...] = ()
    named: str = ""

    @property
    def text(self) -> str:
        """Entry in BibTeX, ending with a newline."""
        lines = [f"  {name} = {{{value}}},\n" for name, value in self.fields.items()]
        return f"@{self.kind}{{{self.key},\n{''.join(lines)}}}\n"


@cache
def read_entries() -> tuple[BibEntry, ...]:
    """Return all entries of `references.bib`, ordered by citation key."""
    entries = []
    for kind, key, body in _BLOCK.findall(_FILE.read_text(encoding="utf-8")):
        fields = dict(_FIELD.findall(body))
        ours = {name: fields.pop(name, "") for name in _OURS}
        entries.append(BibEntry(kind, key, fields, tuple(ours["davylamp"].split()), ours["named"]))
    return tuple(sorted(entries, key=lambda entry: entry.key))


def entries_for(kind: str, name: str) -> tuple[BibEntry, ...]:
    """Return the entries to cite for an item.

    Args:
        kind: kind of item, such as "attack" or "library".
        name: name of the item in davylamp, such as "pgd". A model may match the pattern of an entry.
    """
    item = f"{kind}:{name}"
    return tuple(entry for entry in read_entries() if any(fnmatch(item, source) for source in entry.sources))


def entries_named(source: str) -> tuple[tuple[BibEntry, ...], tuple[str, ...]]:
    """Return the entries to cite for the source of a metric, and the parts of the source that have no entry.

    Args:
        source: source of a metric, such as "CANARY (Sun et al. 2023), 3.1.1; AISafety (Liu et al. 2021), eq 7".
    """
    entries, unknown = [], []
    for part in filter(None, (each.strip() for each in source.split(";"))):
        named = [entry for entry in read_entries() if entry.named and entry.named in part]
        entries += named
        unknown += [] if named else [part]
    return tuple(dict.fromkeys(entries)), tuple(unknown)


def software_entry(versions: Sequence[str]) -> BibEntry:
    """Return the entry to cite for davylamp.

    Args:
        versions: versions of davylamp that were used.
    """
    title = "{davylamp}: One interface over libraries of adversarial attacks, and measured robustness"
    fields = {"author": "{The davylamp authors}", "title": title}
    return BibEntry("misc", "davylamp", {**fields, "year": _YEAR, "note": f"Version {', '.join(versions)}"})
