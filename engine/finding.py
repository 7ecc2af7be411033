"""Findings: sentences about results, with a severity. Commands, reports and JSON output all show findings."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

State = Literal["pass", "warn", "fail", "unknown", "note"]
STATES: tuple[State, ...] = ("fail", "warn", "unknown", "pass")  # states of a check, the worst first


@dataclass(frozen=True)
class Finding:
    """A statement about results, with a severity.

    Args:
        name: kebab-case code of the failure indicator, the verdict or the note of a table.
        title: title of the failure indicator; "" for other findings.
        state: severity. "pass", "warn" or "fail" for the result of a test, "unknown" if data for the test is missing,
            and "note" for a statement without a test.
        subject: name of the model, or "attack (threat model) on model" for a run; "" for the folder.
        cell: key of the run; "" if the finding is not about a single run.
        images: names of the images concerned.
        detail: one sentence with the numbers. For "unknown", the reason.
        advice: what the user can do; "" for a pass.
        source: the paper that describes the test, and the section; otherwise "davylamp".
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
        """Return the fields of the finding as `check --json` prints them."""
        return {name: value for name, value in vars(self).items() if name != "numbers"}


def note(
    name: str, sentence: str, *, state: State = "note", subject: str = "", cell: str = "", **numbers: Any
) -> Finding:
    """Build a finding without title and advice, such as a note of a table.

    If `numbers` are given, the sentence is a format string with the fields `subject` and the names of the numbers.
    """
    detail = sentence.format(subject=subject, **numbers) if numbers else sentence
    return Finding(name, "", state, subject, cell, (), detail, numbers=numbers)


def sentences(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return the sentence of each finding."""
    return tuple(map(str, findings))


def plain(value: Any) -> Any:
    """Convert a value to JSON types. NaN and infinity become None."""
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
