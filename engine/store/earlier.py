"""What a results folder has of models that answer otherwise now."""

from collections.abc import Iterable
from typing import Any

from ...adapters.models.remote.address import is_address
from ..cell import ModelOnData
from .contents import read_records
from .sealed import Damaged
from .store import ResultsStore


def list_changed(store: ResultsStore, subjects: Iterable[tuple[ModelOnData, Any]]) -> list[str]:
    """A line for each remote model whose cells in a folder were made with other answers than its server gives now."""
    asked = {subject.model: subject for subject, _ in subjects if is_address(subject.model)}
    if not asked:
        return []
    known: dict[str, set[str]] = {}
    for _, record in read_records(store, "clean"):
        if not isinstance(record, Damaged):
            subject = ModelOnData(**record.meta["subject"])
            known.setdefault(subject.model, set()).add(subject.model_digest)
    return [
        f"{name}: its server answers otherwise, or describes its model otherwise, than when this folder was filled "
        f"(now {subject.model_digest[:6]}, before {', '.join(sorted(digest[:6] for digest in known[name]))}): new cells"
        for name, subject in asked.items()
        if name in known and subject.model_digest not in known[name]
    ]
