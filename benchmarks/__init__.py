"""The papers' tables, run again (`davylamp reproduce`).

A table is one row, `PaperTable`; docs/add-a-paper-table.md shows one.
"""

from .shared.paper_table import Options, PaperTable

__all__ = ["Options", "PaperTable"]
