"""Result type of functions that have no result class of their own, and collection of notes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ..engine.displayed import Displayed


@dataclass(frozen=True, repr=False)
class VerbResult(Displayed):
    """Result of a function, available as text, as a table, and as JSON types.

    Args:
        headline: one sentence with the most important numbers.
        rows: the rows of the table.
        document: the whole result as JSON types, as printed with `--json`.
        notes: notes for the reader.
        made: the underlying objects: certificates, indicator results, detections, a trained detector.
        short: rows and notes that the text shows, if it does not show all.
    """

    headline: str
    rows: Sequence[Mapping[str, Any]]
    document: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    made: Any = None
    short: tuple[Sequence[Mapping[str, Any]], tuple[str, ...]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the whole result as JSON types."""
        return dict(self.document)

    def to_frame(self) -> pd.DataFrame:
        """Return the table as a DataFrame."""
        return pd.DataFrame([*self.rows])

    def _shown(self) -> tuple[str, pd.DataFrame, Sequence[str]]:
        rows, notes = (self.rows, self.notes) if self.short is None else self.short
        return self.headline, pd.DataFrame([*rows]), notes


class Notes:
    """Notes of one call, without duplicates, in the order in which they were added.

    Args:
        tell: called with each note as soon as it is added, or None.
    """

    def __init__(self, tell: Callable[[str], object] | None = None):
        self.lines: list[str] = []
        self._tell = tell

    def add(self, *lines: str) -> None:
        """Add notes; empty ones are skipped."""
        for line in lines:
            if line and line not in self.lines:
                self.lines.append(line)
                if self._tell is not None:
                    self._tell(line)
