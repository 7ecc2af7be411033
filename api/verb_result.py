"""Result of the functions that have no result class of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ..engine.displayed import Displayed


@dataclass(frozen=True, repr=False)
class VerbResult(Displayed):
    """Result of a function: as a sentence, as a table, and as JSON types.

    Args:
        headline: one sentence with the most important numbers.
        rows: the rows of the table.
        document: the whole result as JSON types, as printed with `--json`.
        notes: notes for the reader.
        made: the underlying objects: certificates, indicator results, detections, a trained detector.
    """

    headline: str
    rows: Sequence[Mapping[str, Any]]
    document: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    made: Any = None

    def to_dict(self) -> dict[str, Any]:
        """Return the whole result as JSON types."""
        return dict(self.document)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per image, check, detector, run or file."""
        return pd.DataFrame([*self.rows])

    def _shown(self) -> tuple[str, pd.DataFrame, Sequence[str]]:
        return self.headline, self.to_frame(), self.notes
