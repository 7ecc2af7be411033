"""Finds the items to cite: everything that a results folder used, or all items with a given name."""

import math
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from ...adapters import Implementation, canonical_attack
from ...adapters.attack import name_from_record
from ...adapters.catalogue.lookup import ATTACKS, IMPLEMENTATIONS, LIBRARIES
from ...adapters.models.defences.catalogue import ROWS as DEFENCES
from ...adapters.models.defences.names import is_defence, parse_defence
from ...adapters.models.detectors.detector_rows import ROWS as DETECTORS
from ...adapters.models.zoo.load import PROVIDERS
from ...engine.challenge.challenge_result import FILE as CHALLENGES
from ...engine.metric_names import base_symbol
from ...engine.store.plan_records import CellState, list_cells
from ...engine.store.record_validation import read_records
from ...engine.store.store import ResultsStore
from ...engine.tables.table import build_table
from ...engine.training.methods import METHODS
from ...errors import DavylampError, UnknownName
from ...metrics import METRICS, symbols_named
from .bibliography import entries_for, read_entries

_SUFFIX = "-train"


class CitedItem(NamedTuple):
    """Item to cite, such as an attack, a library or a data set.

    Args:
        kind: kind of item: "attack", "library", "metric", "data", "model", "defence", "detector", "training", "method"
            or "source".
        name: name of the item in davylamp.
        source: description of the source, such as a paper. Empty if unknown.
        version: version of a library that was used. Empty for other items.
    """

    kind: str
    name: str
    source: str = ""
    version: str = ""


def items_used_in(folder: str | PathLike[str]) -> list[CitedItem]:
    """Return the items to cite for everything that a results folder used, without duplicates.

    Raises:
        Unavailable: If there is no such folder, or it contains no run.
        StoreMismatch: If the folder has an unsupported format.
    """
    states = list_cells(folder)
    used: list[CitedItem] = []
    for state in states:
        used += _of_cell(state)
    used += [used_metric(symbol) for symbol in _metrics_of(folder)]
    used += _beside_cells(ResultsStore(folder, create=False))
    if (Path(folder) / CHALLENGES).is_file():
        used.append(CitedItem("method", "challenge"))
    return list(dict.fromkeys(used))


def libraries_of(states: Iterable[CellState]) -> set[str]:
    """Return the names of the attack libraries that some runs used."""
    return {row.library for state in states for row in _rows_of(state)}


def davylamp_versions(folder: str | PathLike[str]) -> list[str]:
    """Return the versions of davylamp that wrote the records of a results folder."""
    return sorted({str(state.meta["versions"]["davylamp"]) for state in list_cells(folder) if _knows(state)})


def used_metric(symbol: str) -> CitedItem:
    """Return the item to cite for a metric. The symbol of the metric may include a parameter ("FR@10")."""
    base = base_symbol(symbol)
    return CitedItem("metric", base, METRICS[base].source if base in METRICS else "")


def used_by_name(name: str) -> list[CitedItem]:
    """Return all items with a given name. For example, "pgd" is both an attack and a training method.

    Args:
        name: name of an attack, an implementation ("foolbox:pgd"), a library, a metric, a defence, a detector, a
            training method, a data set or a model. A prefix selects one kind of item ("attack:pgd").

    Raises:
        UnknownName: If the name is unknown.
    """
    kind, _, rest = name.partition(":")
    known = {source for entry in read_entries() for source in entry.sources}
    used = [each for each in _called(rest) if each.kind == kind] if rest else []
    used = used or list(_called(name)) or ([CitedItem(kind, rest)] if name in known else [])
    if not used:
        everything = [*ATTACKS, *LIBRARIES, *METRICS, *(source.partition(":")[2] for source in known)]
        raise UnknownName("name", name, everything, hint="an attack, a library, a metric, a defence, data or a model")
    return list(dict.fromkeys(used))


def split_model(name: str) -> list[CitedItem]:
    """Return the items to cite for a model name: the model and its defences.

    For example, "timm:vit_tiny+jpeg:quality=50" gives a model and a defence.
    """
    base, *parts = name.split("+")
    used = [CitedItem("model", base)]
    for part in parts:
        try:
            used += [CitedItem("defence", parse_defence(part).defence.full_name)] if is_defence(part) else []
        except DavylampError:  # name from a different version
            used.append(CitedItem("defence", part))
    return used


def split_data(name: str) -> list[CitedItem]:
    """Return the items to cite for a data name: the data set and, if there is one, the corruption.

    For example, "torchvision:cifar10-train:FOLDER+fog:3" gives CIFAR-10 and a corruption.
    """
    base, _, corruption = name.partition("+")
    prefix, _, rest = base.partition(":")
    word = rest.partition(":")[0].lower().removesuffix(_SUFFIX)
    used = CitedItem("data", base)
    if prefix in ("demo", "foolbox", "torchvision") and entries_for("data", word):
        used = CitedItem("data", word)
    elif entries_for("data", prefix.lower().removesuffix(_SUFFIX)):
        used = CitedItem("data", prefix.lower().removesuffix(_SUFFIX))
    return [used, *([CitedItem("data", "corrupted")] if corruption else [])]


def _of_cell(state: CellState) -> Iterator[CitedItem]:
    cell, versions = state.cell, state.meta.get("versions", {})
    if "torch" in versions:
        yield CitedItem("library", "torch", "", str(versions["torch"]))
    for row in _rows_of(state):
        library = LIBRARIES.get(row.library)
        version = str(versions.get(library.distribution, "")) if library else ""
        yield CitedItem("attack", row.canonical_name, canonical_attack(row).source)
        if not row.is_user_attack:
            yield CitedItem("library", row.library, "", version)
    for model in (cell.subject.model, *(each.model for each in cell.surrogate)):
        yield from split_model(model)
    yield from split_data(cell.subject.data)
    if cell.fitted_on is not None and cell.fitted_on.images:
        yield from split_data(cell.fitted_on.data)
    if cell.eot > 1:
        yield CitedItem("method", "eot")


def _rows_of(state: CellState) -> Sequence[Implementation]:
    """Return the implementations that a run used. Empty if the attack is not in the catalogue of this installation."""
    try:
        if state.cell.search.sums_up:  # user files are not loaded
            names = [member.attack for member in state.cell.members]
            return [IMPLEMENTATIONS[name] for name in names if name in IMPLEMENTATIONS]
        return state.cell.search.rows(state.cell.row)
    except UnknownName:
        return []


def _beside_cells(store: ResultsStore) -> Iterator[CitedItem]:
    """Yield the items of records that are not runs, such as detectors, corrupted data and imported results."""
    for _, record in read_records(store, "detections"):
        yield CitedItem("detector", str(record.meta["detector"]["name"]))
    for _, record in read_records(store, "transfer"):
        yield from split_model(str(record.meta["subject"]["model"]))
    for _, record in read_records(store, "references"):
        yield CitedItem("source", str(record.meta["reference"]["source"]))
    if any(True for _ in read_records(store, "corruptions")):
        yield CitedItem("data", "corrupted")


def _metrics_of(folder: str | PathLike[str]) -> list[str]:
    """Return the symbols of the metrics that have a value in the folder. Empty if no run is finished."""
    try:
        table = build_table(folder, bootstrap=0)
    except DavylampError:
        return []
    has_value = {name for row in table.rows for name, each in row.metrics.items() if not math.isnan(each.value)}
    return [symbol for symbol in table.symbols if symbol in has_value and base_symbol(symbol) in METRICS]


def _called(name: str) -> Iterator[CitedItem]:
    row = IMPLEMENTATIONS.get(name_from_record(name))
    if row is not None:
        yield from (CitedItem("attack", row.attack, canonical_attack(row).source), CitedItem("library", row.library))
    if name in ATTACKS:
        yield CitedItem("attack", name, ATTACKS[name].source)
    if name in LIBRARIES or entries_for("library", name):
        yield CitedItem("library", name)
    for symbol in symbols_named(name) or symbols_named(name.partition("@")[0]):
        yield used_metric(symbol)
    for kind, rows in (("defence", DEFENCES), ("detector", DETECTORS)):
        yield from (CitedItem(kind, row.full_name, row.source) for row in rows if name in (row.name, row.full_name))
    if name in METHODS:
        yield CitedItem("training", name, METHODS[name].source)
    yield from (CitedItem(kind, name) for kind in ("method", "source") if entries_for(kind, name))
    yield from _called_data_or_model(name)


def _called_data_or_model(name: str) -> Iterator[CitedItem]:
    data = split_data(name)
    if entries_for("data", data[0].name):
        yield from data
    elif name.partition(":")[0] in PROVIDERS and name not in IMPLEMENTATIONS:
        yield from split_model(name)


def _knows(state: CellState) -> bool:
    return "davylamp" in state.meta.get("versions", {})
