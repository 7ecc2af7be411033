"""Files that describe shared results: the data card README.md, LICENSE.txt and the manifest bundle.json."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ... import __version__
from ...errors import InvalidInput
from .flat_tables import COLUMNS, MEANINGS
from .merge import describe_counts

_SPDX = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,60}")
_UNSTATED = "no licence is stated; ask the creator of these results for permission before you use them"


@dataclass(frozen=True)
class SharingTerms:
    """Licence, creator, title and description that a person states for the results that they share.

    Args:
        licence: SPDX identifier of the licence, such as "CC-BY-4.0". If the licence is "", the files that describe the
            results tell readers that no licence is stated.
        creator: person or organisation that made the results. "" if not stated.
        name: title of the data set. "" for a title made from the names of the models and the data.
        description: description of the data set. "" for a generated summary of the content.

    Raises:
        InvalidInput: If the licence is not an SPDX identifier, or if another field has line breaks.
    """

    licence: str = ""
    creator: str = ""
    name: str = ""
    description: str = ""

    def __post_init__(self):
        if self.licence and not _SPDX.fullmatch(self.licence):
            raise InvalidInput(f"expected an SPDX identifier such as CC-BY-4.0 as licence, got {self.licence[:60]!r}")
        for name in ("creator", "name", "description"):
            if not getattr(self, name).isprintable():
                raise InvalidInput(f"expected --{name} in one line of printable text")


@dataclass(frozen=True)
class SharedTables:
    """Tables of a results folder to be shared, from which the data card and the manifest are made.

    Args:
        tables: tables by name, from `flat_tables`.
        files: content of the Parquet file of each table, by table name.
        terms: licence, creator, title and description that the user states.
        records: number of records in the bundle, by kind. Empty if only the tables are shared.
    """

    tables: Mapping[str, pa.Table]
    files: Mapping[str, bytes]
    terms: SharingTerms
    records: Mapping[str, int] = field(default_factory=dict)

    def distinct(self, column: str) -> list[str]:
        """Return the different values of a column of the table "cells", sorted; [] if the column does not exist."""
        table = self.tables.get("cells")
        if table is None or column not in table.column_names:
            return []
        return sorted({str(value) for value in table[column].to_pylist() if value is not None and value == value})  # noqa: PLR0124 - NaN

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the programs that the runs used, by program, such as "1.2", or "1.2, 1.3" if runs differ."""
        seen: dict[str, set[str]] = {}
        for text in self.distinct("versions"):
            for name, version in json.loads(text).items():
                seen.setdefault(name, set()).add(str(version))
        return {name: ", ".join(sorted(each)) for name, each in sorted(seen.items())}

    @property
    def name(self) -> str:
        """Title of the data set, from the user's terms or else from the names of the models and the data."""
        models, data = self.distinct("model"), self.distinct("data")
        shown = ", ".join(models[:3]) + (f" and {len(models) - 3} more" if len(models) > 3 else "")
        return self.terms.name or f"Adversarial robustness of {shown or 'models'} on {', '.join(data) or 'images'}"

    @property
    def description(self) -> str:
        """Description of the data set, from the user's terms or else a summary of the content."""
        cells = self.tables.get("cells")
        count = 0 if cells is None else len(cells)
        made = (
            f"Per-image results of {count} attack runs (each with a model, an attack of a library, a threat model "
            "and a seed): "
            f"{len(self.distinct('model'))} models, {len(self.distinct('implementation'))} implementations of attacks, "
            f"measured by davylamp. A failed attack is recorded as failed, never as robust."
        )
        return self.terms.description or made

    @property
    def written(self) -> str:
        """Date of the last run that was written, such as "2026-11-24"; "" if there is no run."""
        return max(self.distinct("written"), default="")[:10]


def card_of(shared: SharedTables) -> str:
    """Return the content of README.md, the data card."""
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
        lines += [
            f"The original records ({describe_counts(shared.records)}) are included: `davylamp import` or "
            "`davylamp table`"
        ]
        lines += ["reads this bundle, `sha256sum -c SHA256SUMS` checks it.", ""]
    return "\n".join(lines)


def licence_text(terms: SharingTerms) -> str:
    """Return the content of LICENSE.txt."""
    if not terms.licence:
        return f"{_UNSTATED.capitalize()}.\n"
    by = f" Made by {terms.creator}." if terms.creator else ""
    return f"SPDX-License-Identifier: {terms.licence}\n{licence_url(terms.licence)}\n{by.strip()}".rstrip() + "\n"


def licence_url(licence: str) -> str:
    """Return the URL of a licence's text."""
    return f"https://spdx.org/licenses/{licence}.html"


def manifest_of(shared: SharedTables) -> dict[str, Any]:
    """Return the content of bundle.json: format version, licence, numbers of records, and configuration of each run."""
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
    return COLUMNS.get(column, f"the metric {_plain(column)} of the image; `davylamp metrics` describes it")


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{_plain(name)}`" for name in names) or "none"


def _plain(text: str) -> str:
    """Replace characters that are Markdown markup by underscores."""
    return re.sub(r"[`|<>\[\]\r\n]", "_", text)
