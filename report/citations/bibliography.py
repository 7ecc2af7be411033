"""The entries of `references.bib`: what each is the source of, and how it is written."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

_FILE = Path(__file__).with_name("references.bib")
_BLOCK = re.compile(r"^@(\w+)\{([\w-]+),\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"  (\w+) = \{(.*)\},")
_YEAR = "2026"  # of the version that is being written: styles with years warn where there is none
_OURS = ("davylamp", "named")  # fields that say what an entry is for, and are not written out


@dataclass(frozen=True, eq=False)
class BibEntry:
    r"""An entry of a bibliography.

    Args:
        kind: "article", "inproceedings", "misc", ...
        key: what `\cite` takes; it never changes.
        fields: by name, as BibTeX has them: braces and accents in LaTeX's way.
        sources: what it is the source of: "attack:pgd", "library:foolbox", "model:timm:vit_*" (a pattern).
        named: what the sources of metrics call it: "CANARY (Sun et al. 2023)"; empty: none does.
    """

    kind: str
    key: str
    fields: Mapping[str, str]
    sources: tuple[str, ...] = ()
    named: str = ""

    @property
    def text(self) -> str:
        """The entry in BibTeX, with a line end behind it."""
        lines = [f"  {name} = {{{value}}},\n" for name, value in self.fields.items()]
        return f"@{self.kind}{{{self.key},\n{''.join(lines)}}}\n"


@cache
def read_entries() -> tuple[BibEntry, ...]:
    """Every entry that davylamp has, ordered by key."""
    entries = []
    for kind, key, body in _BLOCK.findall(_FILE.read_text(encoding="utf-8")):
        fields = dict(_FIELD.findall(body))
        ours = {name: fields.pop(name, "") for name in _OURS}
        entries.append(BibEntry(kind, key, fields, tuple(ours["davylamp"].split()), ours["named"]))
    return tuple(sorted(entries, key=lambda entry: entry.key))


def entries_for(kind: str, name: str) -> tuple[BibEntry, ...]:
    """The entries of "attack", "pgd" and the like; a model may be matched by a pattern."""
    item = f"{kind}:{name}"
    return tuple(entry for entry in read_entries() if any(fnmatch(item, source) for source in entry.sources))


def entries_named(source: str) -> tuple[tuple[BibEntry, ...], tuple[str, ...]]:
    """The entries that the source of a metric names, and the parts of it that name none.

    Args:
        source: as metrics have it: "CANARY (Sun et al. 2023), 3.1.1; AISafety (Liu et al. 2021), eq 7".
    """
    entries, unknown = [], []
    for part in filter(None, (each.strip() for each in source.split(";"))):
        named = [entry for entry in read_entries() if entry.named and entry.named in part]
        entries += named
        unknown += [] if named else [part]
    return tuple(dict.fromkeys(entries)), tuple(unknown)


def software_entry(versions: Sequence[str]) -> BibEntry:
    """The entry of davylamp itself.

    Args:
        versions: of davylamp that were used.
    """
    title = "{davylamp}: One interface over libraries of adversarial attacks, and measured robustness"
    fields = {"author": "{The davylamp authors}", "title": title}
    return BibEntry("misc", "davylamp", {**fields, "year": _YEAR, "note": f"Version {', '.join(versions)}"})
