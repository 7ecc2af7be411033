"""What a record says of how the model's output was read."""

from collections.abc import Iterable, Mapping
from typing import Any


def has_confidences(meta: Mapping[str, Any]) -> bool:
    """Whether the logits of a record are those of a model, or only say which label it gave."""
    return meta.get("outputs") != "labels"


def output_lines(metas: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each model whose output was not taken as it came: unwrapped, probabilities, or labels only.

    Args:
        metas: of the records of clean predictions.
    """
    notes = {str(meta.get("output_note", "")): str(meta.get("subject", {}).get("model", "")) for meta in metas}
    return [note if model in note else f"{model}: {note}" for note, model in notes.items() if note]
