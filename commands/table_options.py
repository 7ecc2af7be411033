"""Options of commands that print tables."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ..errors import InvalidInput
from .options import OUTPUT, split_list

Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", rich_help_panel=OUTPUT, help="show everything: all rows, notes and details")
]


@dataclass(frozen=True)
class TableOptions:
    """Options that choose the columns of a table, and how much is printed."""

    columns: Annotated[list[str] | None, typer.Option(rich_help_panel=OUTPUT, help="show only these columns: A,B")] = (
        None
    )
    wide: Annotated[
        bool,
        typer.Option("--wide", rich_help_panel=OUTPUT, help="show every column, whatever the width of the terminal"),
    ] = False
    verbose: Verbose = False

    def open(self) -> AbstractContextManager[Any]:
        """Context manager for the output console. On exit, omitted columns are listed."""
        from ..report.text.console import open_page

        return open_page(self.chosen, wide=self.wide, verbose=self.verbose)

    def check(self, form: str) -> None:
        """Check that no option that selects columns is combined with a format that has every column.

        Raises:
            InvalidInput: if such an option is combined with the format.
        """
        if form and (self.columns or self.wide):
            option = "--columns" if self.columns else "--wide"
            raise InvalidInput(f"--{form} and {option} cannot be combined: --{form} always has every column")

    @property
    def chosen(self) -> tuple[str, ...]:
        """Names of the columns that the user requested. Empty to show the columns that fit on the screen."""
        return tuple(split_list("--columns", self.columns) or ())
