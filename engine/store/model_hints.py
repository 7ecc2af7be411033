"""How the outputs of evaluated models were read, where there was a choice, and why one may get nothing right."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from ...adapters.models.outputs import explain_accuracy
from ...errors import DavylampError
from ..cell import Cell, ModelOnData
from .given_outputs import answers_change, is_unstable, output_lines, unsteady_lines
from .outcomes import clean_predictions
from .store import Damaged, Kind, Record, ResultsStore


def list_unsteady(store: ResultsStore, subjects: Iterable[tuple[ModelOnData, Any]], cells: Iterable[Cell]) -> list[str]:
    """A line for each model of a plan that answers one image differently each time and does not say so.

    Args:
        store: results.
        subjects: of the plan.
        cells: of the plan.
    """
    models = []
    for subject, _ in subjects:
        record = _read(store, "clean", subject.key)
        models += [subject.model] if record and answers_change(record.meta) else []
    for cell in cells:
        record = _read(store, "cells", cell.key, "violations")
        seen = record and not record.failed and is_unstable(record.table["violations"].to_pylist())
        models += [cell.subject.model] if seen else []
    return unsteady_lines(models)


def list_model_hints(store: ResultsStore, subjects: Iterable[tuple[ModelOnData, Any]]) -> list[str]:
    """A line for each, once the predictions on the clean images are there.

    Args:
        store: results.
        subjects: of a plan.
    """
    known = [subject for subject, _ in subjects]
    keys = {subject.key for subject in known if store.path("clean", subject.key).is_file()}
    lines = list(output_lines(store.read("clean", key).meta for key in sorted(keys)))
    for subject in known:
        predictions = clean_predictions(store, subject)
        if predictions is not None and (hint := explain_accuracy(*predictions)):
            lines.append(f"{subject.model}: {hint}")
    return lines


def _read(store: ResultsStore, kind: Kind, key: str, *columns: str) -> Record | None:
    """A record, or None where there is none that can be used: whoever counts the cells says so."""
    with suppress(Damaged, DavylampError, FileNotFoundError):
        return store.read(kind, key, columns)
    return None
