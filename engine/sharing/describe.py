"""What stands beside shared results: a card, Croissant metadata, a licence, and what was run by which versions."""

import hashlib
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
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_CONTEXT: Mapping[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}


@dataclass(frozen=True)
class Terms:
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
class Shared:
    """What is shared: the tables with their bytes, and what they are about.

    Args:
        tables: by name, as `flat_tables` gives them.
        files: bytes of each as Parquet, by name.
        terms: what whoever shares it says.
        records: number of sealed records of each kind; {}: only the tables are shared.
    """

    tables: Mapping[str, pa.Table]
    files: Mapping[str, bytes]
    terms: Terms
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


def croissant_of(shared: Shared) -> dict[str, Any]:
    """Croissant 1.0: the Parquet files with their checksums, and what each column means."""
    terms = shared.terms
    document: dict[str, Any] = {
        "@context": dict(_CONTEXT),
        "@type": "sc:Dataset",
        "name": re.sub(r"[^A-Za-z0-9]+", "-", shared.name).strip("-")[:200] or "results",
        "alternateName": shared.name,
        "description": shared.description,
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "version": "1.0.0",
    }
    if shared.written:
        document["datePublished"] = shared.written
    if terms.licence:
        document["license"] = licence_url(terms.licence)
    if terms.creator:
        document["creator"] = {"@type": "sc:Person", "name": terms.creator}
        document["citeAs"] = f"{terms.creator}: {shared.name}. {shared.written[:4]}".strip()
    document["distribution"] = [
        {
            "@type": "cr:FileObject",
            "@id": f"{name}.parquet",
            "name": f"{name}.parquet",
            "description": MEANINGS[name],
            "contentUrl": f"data/{name}.parquet",
            "contentSize": f"{len(content)} B",
            "encodingFormat": "application/x-parquet",
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        for name, content in shared.files.items()
    ]
    document["recordSet"] = [_record_set(name, table) for name, table in shared.tables.items()]
    return document


def card_of(shared: Shared) -> str:
    """README.md of the data set, with the front matter that Hugging Face reads."""
    terms, rows = shared.terms, sum(len(table) for table in shared.tables.values())
    front: dict[str, Any] = {
        "pretty_name": shared.name,
        **({"license": terms.licence.lower()} if terms.licence else {}),
        "task_categories": ["image-classification"],
        "tags": ["adversarial-robustness", "adversarial-examples", "benchmark", "davylamp"],
        "size_categories": [next((name for most, name in _SIZES if rows < most), "n>1M")],
        "configs": [
            {"config_name": name, "data_files": f"data/{name}.parquet", **({"default": True} if place == 0 else {})}
            for place, name in enumerate(shared.tables)
        ],
    }
    # JSON is YAML, and needs no library to be written right.
    lines = ["---", *(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in front.items()), "---", ""]
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


def licence_text(terms: Terms) -> str:
    """What LICENSE.txt says."""
    if not terms.licence:
        return f"{_UNSTATED.capitalize()}.\n"
    by = f" Made by {terms.creator}." if terms.creator else ""
    return f"SPDX-License-Identifier: {terms.licence}\n{licence_url(terms.licence)}\n{by.strip()}".rstrip() + "\n"


def licence_url(licence: str) -> str:
    """Where the text of a licence is."""
    return f"https://spdx.org/licenses/{licence}.html"


def manifest_of(shared: Shared) -> dict[str, Any]:
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


def _record_set(name: str, table: pa.Table) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": MEANINGS[name],
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{name}/{each.name}",
                "name": f"{name}/{each.name}",
                "description": _meaning(each.name),
                "dataType": _data_type(each.type),
                "source": {"fileObject": {"@id": f"{name}.parquet"}, "extract": {"column": each.name}},
                **({"repeated": True} if pa.types.is_nested(each.type) else {}),
            }
            for each in table.schema
        ],
    }


def _data_type(kind: pa.DataType) -> str:
    if pa.types.is_nested(kind):
        return "sc:Float"
    if pa.types.is_boolean(kind):
        return "sc:Boolean"
    if pa.types.is_integer(kind):
        return "sc:Integer"
    return "sc:Float" if pa.types.is_floating(kind) else "sc:Text"


def _meaning(column: str) -> str:
    return COLUMNS.get(column, f"the metric {_plain(column)} of the image; `davylamp metrics` says what it measures")


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{_plain(name)}`" for name in names) or "none"


def _plain(text: str) -> str:
    """A text of somebody else's that cannot become markup of the card."""
    return re.sub(r"[`|<>\[\]\r\n]", "_", text)
