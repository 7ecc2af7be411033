"""Reproductions of tables and figures of papers, which `davylamp reproduce` runs.

Each table is defined by a `PaperTable`. docs/add-a-paper-table.md shows an example.
"""

from .shared.paper_table import Options, PaperTable

__all__ = ["Options", "PaperTable"]
