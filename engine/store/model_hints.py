"""How the outputs of evaluated models were read, where there was a choice, and why one may get nothing right."""

from collections.abc import Iterable
from typing import Any

from ...adapters.models.outputs import explain_accuracy
from ...errors import Unavailable
from ..cell import ModelOnData
from .given_outputs import output_lines
from .outcomes import clean_predictions, read_outcomes
from .store import ResultsStore


def list_unsteady(store: ResultsStore, subjects: Iterable[tuple[ModelOnData, Any]]) -> list[str]:
    """A line for each model of a plan that answers one image differently each time and does not say so."""
    names = tuple(f"{subject.name}: " for subject, _ in subjects)
    try:
        return [line for line in read_outcomes(store.folder).unsteady if line.startswith(names)]
    except Unavailable:  # no cell is finished
        return []


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
