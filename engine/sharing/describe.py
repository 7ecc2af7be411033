"""What stands beside shared results: a card, a licence, and what was run by which versions."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ... import __version__
from ...errors import InvalidInput
from .flat_tables import COLUMNS, MEANINGS

_SPDX = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,60}")
_UNSTATED = "no licence is stated: ask whoever made these results before you use them"


@dataclass(frozen=True)
class SharingTerms:
    """What only whoever shares results can say.

    Args:
        licence: an SPDX identifier, as "CC-BY-4.0"; "": not stated, and every file says so.
        creator: a person or an organisation; "": not stated.
        name: of the data set; "": made of the models and the data.
        description: a sentence; "": made of what is there.

    Raises:
        InvalidInput: if the licence is no SPDX identifier, or a text has line breaks.
    """

    licence: str = ""
    creator: str = ""
    name: str = ""
    description: str = ""

    def __post_init__(self):
        if self.licence and not _SPDX.fullmatch(self.licence):
            raise InvalidInput(f"expected a licence by its SPDX identifier, as CC-BY-4.0, got {self.licence[:60]!r}")
        for name in ("creator", "name", "description"):
            if not getattr(self, name).isprintable():
                raise InvalidInput(f"expected --{name} in one line of printable text")


@dataclass(frozen=True)
class SharedTables:
    """What is shared: the tables with their bytes, and what they are about.

    Args:
        tables: by name, as `flat_tables` gives them.
        files: bytes of each as Parquet, by name.
        terms: what whoever shares it says.
        records: number of sealed records of each kind; {}: only the tables are shared.
    """

    tables: Mapping[str, pa.Table]
    files: Mapping[str, bytes]
    terms: SharingTerms
    records: Mapping[str, int] = field(default_factory=dict)

    def distinct(self, column: str) -> list[str]:
        """Values of a column of the cells, sorted; [] if there are none."""
        table = self.tables.get("cells")
        if table is None or column not in table.column_names:
            return []
        return sorted({str(value) for value in table[column].to_pylist() if value is not None and value == value})  # noqa: PLR0124 - NaN

    @property
    def versions(self) -> dict[str, str]:
        """Of every program that made a cell: "1.2" or "1.2, 1.3"."""
        seen: dict[str, set[str]] = {}
        for text in self.distinct("versions"):
            for name, version in json.loads(text).items():
                seen.setdefault(name, set()).add(str(version))
        return {name: ", ".join(sorted(each)) for name, each in sorted(seen.items())}

    @property
    def name(self) -> str:
        """What it is called."""
        models, data = self.distinct("model"), self.distinct("data")
        shown = ", ".join(models[:3]) + (f" and {len(models) - 3} more" if len(models) > 3 else "")
        return self.terms.name or f"Adversarial robustness of {shown or 'models'} on {', '.join(data) or 'images'}"

    @property
    def description(self) -> str:
        """What is in it."""
        cells = self.tables.get("cells")
        count = 0 if cells is None else len(cells)
        made = (
            f"Per-image results of {count} cells (a model, an attack of a library, a threat model, a seed): "
            f"{len(self.distinct('model'))} models, {len(self.distinct('implementation'))} implementations of attacks, "
            f"measured by davylamp. A failed attack is recorded as failed, never as robust."
        )
        return self.terms.description or made

    @property
    def written(self) -> str:
        """Day of the last record, as 2026-11-24; "" where none says."""
        return max(self.distinct("written"), default="")[:10]


def card_of(shared: SharedTables) -> str:
    """README.md of the data set."""
    terms, lines = shared.terms, []
    lines += [f"# {_plain(shared.name)}", "", _plain(shared.description), ""]
    lines += [f"- models: {_listed(shared.distinct('model'))}", f"- data: {_listed(shared.distinct('data'))}"]
    lines += [
        f"- attacks: {_listed(shared.distinct('implementation'))}",
        f"- norms: {_listed(shared.distinct('norm'))}",
    ]
    lines += [f"- licence: {terms.licence or _UNSTATED}", f"- made by: {_plain(terms.creator) or 'not stated'}"]
    lines += [f"- programs: {_listed([f'{name} {version}' for name, version in shared.versions.items()])}", ""]
    for name, table in shared.tables.items():
        lines += [f"## data/{name}.parquet", "", f"{MEANINGS[name]}; {len(table)} rows.", ""]
        lines += ["| column | type | meaning |", "|---|---|---|"]
        lines += [f"| `{_plain(each.name)}` | {each.type} | {_meaning(each.name)} |" for each in table.schema]
        lines.append("")
    if shared.records:
        kinds = ", ".join(f"{count} {kind}" for kind, count in shared.records.items())
        lines += [f"The records as they were written ({kinds}) are beside them: `davylamp import` or `davylamp table`"]
        lines += ["reads this bundle, `sha256sum -c SHA256SUMS` checks it.", ""]
    return "\n".join(lines)


def licence_text(terms: SharingTerms) -> str:
    """What LICENSE.txt says."""
    if not terms.licence:
        return f"{_UNSTATED.capitalize()}.\n"
    by = f" Made by {terms.creator}." if terms.creator else ""
    return f"SPDX-License-Identifier: {terms.licence}\n{licence_url(terms.licence)}\n{by.strip()}".rstrip() + "\n"


def licence_url(licence: str) -> str:
    """Where the text of a licence is."""
    return f"https://spdx.org/licenses/{licence}.html"


def manifest_of(shared: SharedTables) -> dict[str, Any]:
    """What bundle.json says: the form of the bundle, what is in it, and the configuration of every cell."""
    cells = shared.tables.get("cells")
    return {
        "bundle": 1,
        "made_by": f"davylamp {__version__}",
        "name": shared.name,
        "licence": shared.terms.licence or None,
        "creator": shared.terms.creator or None,
        "records": dict(shared.records),
        "tables": {name: len(table) for name, table in shared.tables.items()},
        "versions": shared.versions,
        "configuration": {}
        if cells is None
        else dict(zip(cells["cell"].to_pylist(), map(json.loads, cells["spec"].to_pylist()), strict=True)),
    }


def _meaning(column: str) -> str:
    return COLUMNS.get(column, f"the metric {_plain(column)} of the image; `davylamp metrics` says what it measures")


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{_plain(name)}`" for name in names) or "none"


def _plain(text: str) -> str:
    """A text of somebody else's that cannot become markup of the card."""
    return re.sub(r"[`|<>\[\]\r\n]", "_", text)
