"""The result of the verbs whose result has no class of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ..engine.displayed import Displayed


@dataclass(frozen=True, repr=False)
class VerbResult(Displayed):
    """What a verb came to: in a sentence, as a table, and as JSON types.

    Args:
        headline: one sentence with the most important numbers.
        rows: a line of the table each.
        document: all of it as JSON types; what a command that has `--json` prints with it.
        notes: what a reader should know.
        made: what it was made from: certificates, findings, detections, a trained detector.
    """

    headline: str
    rows: Sequence[Mapping[str, Any]]
    document: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    made: Any = None

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON types."""
        return dict(self.document)

    def to_frame(self) -> pd.DataFrame:
        """A line for each image, check, detector, run or file."""
        return pd.DataFrame([*self.rows])

    def _shown(self) -> tuple[str, pd.DataFrame, Sequence[str]]:
        return self.headline, self.to_frame(), self.notes
