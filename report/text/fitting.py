"""A table fitted to a terminal: which columns stand, and what becomes of those that do not fit."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from .layout import GAP, ColumnWidth, Rest, at_words, choose_columns, lay_out, lay_out_blocks, measure, widths_of

Styled = tuple[str, str]  # a line and its style, "bold", "dim" or ""
_TALL = 4  # lines of a row that is still read in columns
_LONG = 44  # characters of the name of a worst case that is not shortened
_MEMBER = r"(?:[^(),]|\([^()]*\))+"
_WORST_CASE = re.compile(rf"worst-case\(({_MEMBER})((?:,{_MEMBER})+)\)")


@dataclass(frozen=True)
class TableText:
    """A table as texts.

    Args:
        names: headings.
        lines: cells, a row each.
        keys: columns from the left that say what a row is about, and are always shown.
        order: names of columns that matter more than the others, in this order.
        rest: what becomes of columns that do not fit: see `console.print_table`.
        common: names of columns that are written once, above the table, as keys are, if all rows have the same there.
    """

    names: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    keys: int
    order: tuple[str, ...] = ()
    rest: Rest = "drop"
    common: tuple[str, ...] = ()

    @property
    def ranked(self) -> list[int]:
        """The places of the columns, the one that matters most first."""
        first = dict.fromkeys(self.names.index(name) for name in self.order if name in self.names)
        return [*first, *(place for place in range(len(self.names)) if place not in first)]

    def part(self, places: Sequence[int]) -> "TableText":
        """The table with these columns; its keys are those among them."""
        lines = tuple(tuple(line[place] for place in places) for line in self.lines)
        keys = sum(place < self.keys for place in places)
        return replace(self, names=tuple(self.names[place] for place in places), lines=lines, keys=keys)


@dataclass(frozen=True)
class FittedTable:
    """A table as lines.

    Args:
        lines: with their styles.
        shown: headings of the columns that are in them.
        left_out: headings of those that are not.
    """

    lines: tuple[Styled, ...]
    shown: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def fit(table: TableText, width: int) -> FittedTable:
    """A table in lines that are not longer than `width`, no word broken.

    What is the same in every row is written once, above the table, where that makes room. Where nothing but keys
    would fit, each value of the first key gets a table. Rows that columns would break into many lines become blocks.
    """
    measured = _measure(table)
    ranked = table.ranked
    chosen = choose_columns(measured, width, ranked, table.keys)
    left_out = [place for place in ranked if place not in chosen and place >= table.keys]
    same = _same_everywhere(table) if left_out or not chosen else []
    if same:
        said = "; ".join(f"{table.names[place]} {table.lines[0][place]}" for place in same)
        inner = fit(table.part([place for place in range(len(table.names)) if place not in same]), width)
        heading = tuple((line, "dim") for line in at_words(said, width))
        shown = {*(table.names[place] for place in same), *inner.shown}
        return replace(inner, lines=heading + inner.lines, shown=tuple(n for n in table.names if n in shown))
    if left_out and len(chosen) == table.keys > 1:
        return _in_groups(table, width)
    if not chosen or (table.rest == "blocks" and (left_out or _is_ragged(table, width))):
        lines = lay_out_blocks(table.names, table.lines, width, table.keys)
        return FittedTable(tuple((line, "") for line in lines), table.names)
    lines = list(_in_columns(table.part(chosen), width))
    if left_out and table.rest == "stack":
        lines += _stacked(table, left_out, width)
        return FittedTable(tuple(lines), table.names)
    return FittedTable(
        tuple(lines), tuple(table.names[place] for place in chosen), tuple(table.names[place] for place in left_out)
    )


def short_name(text: str) -> str:
    """The text with each long list of attacks in a worst case as the first of them and the number of the others.

    "worst-case(foolbox:fgsm,foolbox:pgd,...)" becomes "worst-case(foolbox:fgsm+11)".
    """

    def shortened(match: re.Match[str]) -> str:
        others = len(re.findall(f",{_MEMBER}", match[2]))
        return f"worst-case({match[1]}+{others})" if len(match[0]) > _LONG else match[0]

    return _WORST_CASE.sub(shortened, text)


def _in_groups(table: TableText, width: int) -> FittedTable:
    """A table for each value of the first key, below that value: nothing but keys would fit beside it.

    What does not fit in one of them is left out of all, unless nothing would be left.
    """
    groups: dict[str, list[tuple[str, ...]]] = {}
    for first, *others in table.lines:
        groups.setdefault(first, []).append(tuple(others))
    parts = [replace(table, names=table.names[1:], lines=tuple(some), keys=table.keys - 1) for some in groups.values()]
    fitted = [fit(part, width) for part in parts]
    left_out = tuple(dict.fromkeys(name for each in fitted for name in each.left_out))
    kept = [place for place, name in enumerate(table.names) if name not in left_out]
    if left_out and len(kept) > table.keys:
        inner = _in_groups(table.part(kept), width)
        return replace(inner, left_out=(*left_out, *inner.left_out))
    lines: list[Styled] = []
    for value, each in zip(groups, fitted, strict=True):
        lines += [("", "")] if lines else []
        lines += [(line, "dim") for line in at_words(f"{table.names[0]} {value}", width)]
        lines += each.lines
    shown = {table.names[0], *(name for each in fitted for name in each.shown)}
    return FittedTable(tuple(lines), tuple(name for name in table.names if name in shown), left_out)


def _stacked(table: TableText, places: Sequence[int], width: int) -> Iterator[Styled]:
    """The columns that did not fit, beside the keys again, in as many tables as it takes, without empty rows."""
    while places:
        every = table.part([*range(table.keys), *places])
        fitting = choose_columns(_measure(every), width, range(table.keys, len(every.names)), table.keys)
        taken = len(fitting) - table.keys
        part = every.part(fitting) if taken > 0 else every
        filled = tuple(line for line in part.lines if any(cell not in ("", "-") for cell in line[part.keys :]))
        part = replace(part, lines=filled or part.lines)
        yield "", ""
        if taken > 0:
            yield from _in_columns(part, width)
        else:
            yield from ((line, "") for line in lay_out_blocks(part.names, part.lines, width, part.keys))
            return
        places = [place for number, place in enumerate(places, table.keys) if number not in fitting]


def _in_columns(table: TableText, width: int) -> Iterator[Styled]:
    measured = _measure(table)
    widths = widths_of(measured, width)
    heading, body = lay_out(table.names, table.lines, measured, widths)
    yield from ((line, "bold") for line in heading)
    yield "─" * min(sum(widths) + GAP * (len(widths) - 1), width), "dim"
    yield from ((line, "") for line in body)


def _same_everywhere(table: TableText) -> list[int]:
    """Keys and common columns with one value in all rows; one key stays in any case."""
    places = [place for place, name in enumerate(table.names) if place < table.keys or name in table.common]
    same = [place for place in places if len({line[place] for line in table.lines}) == 1]
    last = table.keys - 1
    return [place for place in same if place != last] if set(range(table.keys)) <= set(same) else same


def _is_ragged(table: TableText, width: int) -> bool:
    """Whether a row would be broken into more lines than a person reads in columns."""
    widths = widths_of(_measure(table), width)
    return any(
        len(at_words(cell, room)) > _TALL for line in table.lines for cell, room in zip(line, widths, strict=True)
    )


def _measure(table: TableText) -> list[ColumnWidth]:
    return [measure(name, [line[place] for line in table.lines]) for place, name in enumerate(table.names)]
