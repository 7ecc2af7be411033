"""Reproductions of tables from papers (`davylamp reproduce`).

Each table is defined by a `PaperTable`. docs/add-a-paper-table.md shows an example.
"""

from .shared.paper_table import Options, PaperTable

__all__ = ["Options", "PaperTable"]
