"""`VerbResult`, the result type of most public functions, and `Notes`, which collects notes without duplicates."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ..engine.displayed import Displayed


@dataclass(frozen=True, repr=False)
class VerbResult(Displayed):
    """Result of a public function or command. It can be shown as text, as a table, and as JSON.

    Args:
        headline: one sentence with the most important numbers.
        rows: rows of the table, each a mapping from column names to values.
        document: the whole result as JSON types. The command prints it with `--json`.
        notes: notes for the reader.
        made: objects from which the result was built, such as certificates, detections or a trained detector.
        short: rows and notes to show in the text, if the text does not show all of them. None to show all.
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
    """Collects the notes of one call, without duplicates, in the order in which they were added.

    Args:
        tell: function that is called with each note as soon as the note is added. None for no function.
    """

    def __init__(self, tell: Callable[[str], object] | None = None):
        self.lines: list[str] = []
        self._tell = tell

    def add(self, *lines: str) -> None:
        """Add notes. Empty texts and notes that were added before are skipped."""
        for line in lines:
            if line and line not in self.lines:
                self.lines.append(line)
                if self._tell is not None:
                    self._tell(line)
