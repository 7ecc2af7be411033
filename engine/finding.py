"""Everything that is to be said about results is a finding: made once, and printed by every view alike."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

State = Literal["pass", "warn", "fail", "unknown", "note"]
STATES: tuple[State, ...] = ("fail", "warn", "unknown", "pass")  # of what is checked, the worst first


@dataclass(frozen=True)
class Finding:
    """A statement about a folder, a model, a cell, a pair of implementations or a table: no view decides it again.

    Args:
        name: its code, kebab-case: of a failure indicator, a verdict, or what a table says beside its numbers.
        title: of the indicator; "" for any other.
        state: how severe it is: "pass", "warn", "fail", "unknown" where data is missing; "note": nothing to judge.
        subject: the model, or "attack (threat model) on model"; "" for the folder.
        cell: key of the cell; "" for a model or a folder.
        images: names of the images concerned.
        detail: one sentence with the numbers, or why it is unknown.
        advice: what to do; "" for a pass.
        source: paper and the item there, or "davylamp".
        numbers: those of the sentence, by name.
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
        """What `check --json` prints of it."""
        return {name: value for name, value in vars(self).items() if name != "numbers"}


def note(
    name: str, sentence: str, *, state: State = "note", subject: str = "", cell: str = "", **numbers: Any
) -> Finding:
    """A finding that is no indicator's; if it has numbers its sentence has them by {name}, and the {subject}."""
    detail = sentence.format(subject=subject, **numbers) if numbers else sentence
    return Finding(name, "", state, subject, cell, (), detail, numbers=numbers)


def sentences(findings: Iterable[Finding]) -> tuple[str, ...]:
    """The findings in words."""
    return tuple(map(str, findings))


def plain(value: Any) -> Any:
    """The value in JSON's types; what is undefined is None."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def finite(value: float) -> float | None:
    """A number, or None if it is NaN or infinite."""
    return float(value) if math.isfinite(value) else None
