"""The options of every command that prints tables: how much of them."""

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
    """How much of a command's output is printed."""

    columns: Annotated[list[str] | None, typer.Option(rich_help_panel=OUTPUT, help="show only these columns: A,B")] = (
        None
    )
    wide: Annotated[
        bool,
        typer.Option("--wide", rich_help_panel=OUTPUT, help="show every column, whatever the width of the terminal"),
    ] = False
    verbose: Verbose = False

    def open(self) -> AbstractContextManager[Any]:
        """A console for the output; what did not fit is said at its end."""
        from ..report.text.console import open_page

        return open_page(self.chosen, wide=self.wide, verbose=self.verbose)

    def check(self, form: str) -> None:
        """Refuse these options beside another format, which has every column.

        Raises:
            InvalidInput: if there are both.
        """
        if form and (self.columns or self.wide):
            option = "--columns" if self.columns else "--wide"
            raise InvalidInput(f"expected --{form} without {option}: it has every column")

    @property
    def chosen(self) -> tuple[str, ...]:
        """The names of the columns; none: those that fit."""
        return tuple(split_list("--columns", self.columns) or ())
