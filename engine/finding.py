"""Findings: sentences about results, with a severity. All commands, reports and JSON output use the same ones."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

State = Literal["pass", "warn", "fail", "unknown", "note"]
STATES: tuple[State, ...] = ("fail", "warn", "unknown", "pass")  # states of a check, the worst first


@dataclass(frozen=True)
class Finding:
    """A statement about a folder, a model, a run, a pair of implementations or a table, with a severity.

    Args:
        name: kebab-case code of a failure indicator, a verdict or a note of a table.
        title: title of the indicator; "" for other findings.
        state: severity: "pass", "warn", "fail", "unknown" if data is missing, or "note" for a statement without a test.
        subject: the model, or "attack (threat model) on model"; "" for the folder.
        cell: key of the run; "" for a model or a folder.
        images: names of the images concerned.
        detail: one sentence with the numbers, or the reason why the state is unknown.
        advice: what to do; "" for a pass.
        source: paper and item in it, or "davylamp".
        numbers: the numbers of the sentence, by name.
    """

    name: str
    title: str
    state: State
    subject: str
    cell: str
    images: tuple[str, ...]
    detail: str
    advice: str = ""
    source: str = "davylamp"
    numbers: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __str__(self) -> str:
        return self.detail

    def document(self) -> dict[str, Any]:
        """Return the finding as `check --json` prints it."""
        return {name: value for name, value in vars(self).items() if name != "numbers"}


def note(
    name: str, sentence: str, *, state: State = "note", subject: str = "", cell: str = "", **numbers: Any
) -> Finding:
    """Build a finding that does not come from an indicator.

    With `numbers`, the sentence is a format string for them and for `subject`.
    """
    detail = sentence.format(subject=subject, **numbers) if numbers else sentence
    return Finding(name, "", state, subject, cell, (), detail, numbers=numbers)


def sentences(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return the sentence of each finding."""
    return tuple(map(str, findings))


def plain(value: Any) -> Any:
    """Convert to JSON types; NaN and infinity become None."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def finite(value: float) -> float | None:
    """Return the number, or None if it is NaN or infinite."""
    return float(value) if math.isfinite(value) else None
