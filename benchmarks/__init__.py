"""Reproductions of tables from papers (`davylamp reproduce`).

A table is one `PaperTable`; docs/add-a-paper-table.md shows one.
"""

from .shared.paper_table import Options, PaperTable

__all__ = ["Options", "PaperTable"]
