"""What a record says of how the model's output was read."""

from collections.abc import Iterable, Mapping
from typing import Any

from ...adapters.result import UNSTEADY


def has_confidences(meta: Mapping[str, Any]) -> bool:
    """Whether the logits of a record are those of a model, or only say which label it gave."""
    return meta.get("outputs") != "labels"


def answers_change(meta: Mapping[str, Any]) -> bool:
    """Whether a model's probes saw other answers to the same images, and it is not said to draw random numbers."""
    probe = meta.get("probes", {}).get("deterministic", {})
    return bool(probe.get("changed") or probe.get("differs")) and not probe.get("random")


def is_unstable(violations: Iterable[object]) -> bool:
    """Whether the judge saw that on any image, of the kinds of violation of each, with blanks between."""
    return any("unstable" in str(kinds).split() for kinds in violations)


def unsteady_lines(models: Iterable[str]) -> list[str]:
    """A line for each model of which either is so."""
    return [f"{model}: {UNSTEADY}" for model in dict.fromkeys(models)]


def output_lines(metas: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each model whose output was not taken as it came: unwrapped, probabilities, or labels only.

    Args:
        metas: of the records of clean predictions.
    """
    notes = {str(meta.get("output_note", "")): str(meta.get("subject", {}).get("model", "")) for meta in metas}
    return [note if model in note else f"{model}: {note}" for note, model in notes.items() if note]
