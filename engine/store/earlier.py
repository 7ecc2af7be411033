"""What a results folder has of models that are others now."""

from collections.abc import Iterable
from typing import Any

from ...adapters.models.remote.address import is_address
from ..cell import ModelOnData
from .contents import read_records
from .sealed import Damaged
from .store import ResultsStore


def list_changed(store: ResultsStore, subjects: Iterable[tuple[ModelOnData, Any]]) -> list[str]:
    """A line for each model of which a folder has cells that were made with other weights, code or answers."""
    known: dict[str, set[str]] = {}
    for _, record in read_records(store, "clean", (), headers=True):
        if not isinstance(record, Damaged):
            subject = ModelOnData(**record.meta["subject"])
            known.setdefault(subject.model, set()).add(subject.model_digest)
    return [
        f"{subject.model}: {_why(subject.model)} than when this folder was filled (now {subject.model_digest[:6]}, "
        f"before {', '.join(sorted(digest[:6] for digest in known[subject.model]))}): new cells, of another model"
        for subject, _ in subjects
        if subject.model in known and subject.model_digest not in known[subject.model]
    ]


def _why(model: str) -> str:
    if is_address(model):
        return "its server answers otherwise, or describes its model otherwise,"
    return "it has other weights, code or settings"
