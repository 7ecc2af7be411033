"""Display of results: text in a script, and a table in a notebook."""

import html
from collections.abc import Sequence

import pandas as pd

_ROWS = 10  # rows of a repr


class Displayed:
    """Base class of results that have a short text (`_shown`) and a full table (`to_frame`)."""

    def to_frame(self) -> pd.DataFrame:
        """Return all results as a data frame."""
        raise NotImplementedError

    def _shown(self) -> tuple[str, pd.DataFrame, Sequence[str]]:
        raise NotImplementedError

    def __repr__(self) -> str:
        headline, frame, notes = self._shown()
        first = frame.head(_ROWS)
        text = first.astype(object).where(first.notna(), "-").to_string(index=False, float_format="{:.3g}".format)
        rows = text.splitlines() if len(frame) else []
        more = [f"... {len(frame) - _ROWS} more"] if len(frame) > _ROWS else []
        return "\n".join([headline, *rows, *more, *(f"- {note}" for note in notes)])

    def _repr_html_(self) -> str:
        headline, _, notes = self._shown()
        listed = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
        table = self.to_frame().to_html(index=False, max_rows=60)
        return f"<p>{html.escape(headline)}</p>{table}<ul>{listed}</ul>"
