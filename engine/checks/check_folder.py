"""The trust page: every failure indicator that the files of a results folder can answer."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..cell import ModelOnData
from ..store.contents import read_records
from ..store.outcomes import Outcomes, check_models, outcomes_of
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
    outcomes = outcomes_of(folder, ["OTR"])
    check_models(outcomes, models)
    records = read_records(outcomes.store, "checks")
    probes = {key: record.meta["probes"] for key, record in records}
    by_model = list(_model_by_model(outcomes, probes))
    over_cells = list(beaten_checks(outcomes)), list(growth_checks(outcomes))
    over_cells += list(seed_checks(outcomes)), list(library_checks(outcomes))
    keys = {of_model.cell.key: of_model.cell.subject.key for of_model in outcomes.done}
    checks = []
    for subject, of_model in by_model:
        if models is None or subject.is_called(models):
            checks += of_model
            checks += [check for group in over_cells for check in group if keys[check.cell] == subject.key]
    return checks


def _model_by_model(outcomes: Outcomes, probes: dict[str, Any]) -> Iterator[tuple[ModelOnData, list[Check]]]:
    """The checks of each model and of its cells; probes of the model lie beside its clean predictions, or apart."""
    for key, subject in outcomes.subjects.items():
        clean = outcomes.clean.get(key)
        stored = None if clean is None else clean.meta.get("probes")
        names = [] if clean is None else clean.columns["image"].tolist()
        checks = list(model_checks(subject.name, stored or probes.get(key), names, outcomes.refused.get(key, "")))
        for outcome in outcomes.done:
            if outcome.cell.subject.key == key:
                checks += record_checks(outcome, clean)
                checks += run_checks(outcome, probes.get(outcome.cell.key))
        yield subject, checks
