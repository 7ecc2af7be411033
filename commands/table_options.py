"""The options of every command that prints tables: which of their columns."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ..errors import InvalidInput
from .options import OUTPUT, split_list


@dataclass(frozen=True)
class TableOptions:
    """Which columns of the tables are printed."""

    columns: Annotated[list[str] | None, typer.Option(rich_help_panel=OUTPUT, help="show only these columns: A,B")] = (
        None
    )
    wide: Annotated[
        bool,
        typer.Option("--wide", rich_help_panel=OUTPUT, help="show every column, whatever the width of the terminal"),
    ] = False

    def open(self) -> AbstractContextManager[Any]:
        """A console for the tables; what did not fit is said at its end."""
        from ..report.text.console import open_tables

        return open_tables(self.chosen, wide=self.wide)

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
