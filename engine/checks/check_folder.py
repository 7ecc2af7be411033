"""The trust page: every failure indicator that the files of a results folder can answer."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..cell import ModelOnData
from ..store.contents import read_records
from ..store.outcomes import Outcomes, check_models, read_outcomes
from ..store.store import Damaged, Record, ResultsStore
from .cell_checks import record_checks, run_checks
from .cross_checks import beaten_checks, growth_checks, library_checks, seed_checks
from .indicators import INDICATORS, STATES, Check, State
from .model_checks import model_checks

__all__ = ["INDICATORS", "STATES", "Check", "State", "check_folder"]


def check_folder(folder: str | Path | Outcomes, *, models: Sequence[str] | None = None) -> list[Check]:
    """Every indicator of every model, finished cell and attack of a folder; nothing is run.

    What only a run can tell (`probe_folder`) is "unknown" until it was run. Failed cells have no checks: `status` and
    `table` name them.

    Args:
        folder: a results folder, or what was read of it.
        models: only these; None: all.

    Returns:
        Model by model; for each the checks of the model, then of its cells, then of its attacks over several cells.

    Raises:
        Unavailable: if there is no such folder, or neither a finished nor a failed cell in it.
        StoreMismatch: if it was written in another format.
        UnknownName: if a model is not in the folder.
    """
    outcomes = read_outcomes(folder)
    check_models(outcomes, models)
    probes = {key: record.meta["probes"] for key, record in _readable(outcomes.store, "checks")}
    clean = dict(_readable(outcomes.store, "clean"))
    found = list(_model_by_model(outcomes, clean, probes))
    over_cells = list(beaten_checks(outcomes)), list(growth_checks(outcomes))
    over_cells += list(seed_checks(outcomes)), list(library_checks(outcomes))
    keys = {own.cell.key: own.cell.subject.key for own in outcomes.done}
    checks = []
    for subject, own in found:
        if models is None or subject.model in models:
            checks += own
            checks += [check for group in over_cells for check in group if keys[check.cell] == subject.key]
    return checks


def _model_by_model(
    outcomes: Outcomes, clean: dict[str, Record], probes: dict[str, Any]
) -> Iterator[tuple[ModelOnData, list[Check]]]:
    for key, subject in outcomes.subjects.items():
        record = clean.get(key)
        refused = str(record.meta["reason"]) if record is not None and record.failed else ""
        told = None if record is None else record.meta.get("probes")
        names = [] if record is None or record.failed else record.table["image"].to_pylist()
        checks = list(model_checks(subject.model, told or probes.get(key), names, refused))
        for own in outcomes.done:
            if own.cell.subject.key == key:
                checks += record_checks(own, outcomes.clean.get(key))
                checks += run_checks(own, probes.get(own.cell.key))
        yield subject, checks


def _readable(store: ResultsStore, kind: Any) -> Iterator[tuple[str, Record]]:
    for key, record in read_records(store, kind):
        if not isinstance(record, Damaged):
            yield key, record
