"""Pages of results: leaderboards, cells with the line that makes them again, two components side by side."""

import calendar
import itertools
import json
import re
import time
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query
from fastapi.responses import FileResponse, HTMLResponse
from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from ...conventions import KNOWLEDGE
from ...errors import InvalidInput
from ...intervals import difference_bounds, proportion_interval
from ..components.registration import NotFoundError, find_component
from ..database.permissions import Viewer, cells_for, components_for
from ..database.records import CellRow, ComponentRow, UserRow
from .boards import BOARDS, BoardKind, Filters, chosen_cells
from .rendering import render
from .request_context import Page, RequestContext
from .rerun_command import rerun_command

router = APIRouter(include_in_schema=False)
_SHOWN, _PAIRS, _READ = 200, 1000, 5000
_PARTS = ("model_id", "attack_id", "defence_id", "data_id")


class FilterForm(NamedTuple):
    """The filters as a form has them; "": any."""

    data: Annotated[str, Query(max_length=20, description="number of a data set")] = ""
    norm: Annotated[str, Query(max_length=20)] = ""
    epsilon: Annotated[str, Query(max_length=40, description="the radius, as 8/255")] = ""
    targeted: Annotated[str, Query(max_length=3, description="yes or no")] = ""
    knowledge: Annotated[str, Query(max_length=40, description=", ".join(KNOWLEDGE))] = ""
    creator: Annotated[str, Query(max_length=64, description="of the subject")] = ""
    since: Annotated[str, Query(max_length=10, description="a day, YYYY-MM-DD")] = ""
    worst_case: Annotated[str, Query(max_length=3, description="yes: only cells of several attacks together")] = ""

    @property
    def filters(self) -> Filters:
        """As they are meant.

        Raises:
            InvalidInput: if one cannot be read.
        """
        from ...adapters.parameters import parse_number

        if self.data and not re.fullmatch("[0-9]{1,9}", self.data):
            raise InvalidInput(f"expected data as the number of a component, got {self.data[:40]!r}")
        radius = float(parse_number(self.epsilon.strip(), "a radius")) if self.epsilon.strip() else 0.0
        worst_case = "" if self.worst_case == "no" else self.worst_case
        rest = (self.targeted, self.knowledge, self.creator, _day(self.since), worst_case)
        return Filters(int(self.data or 0), self.norm, radius, *rest)


Asked = Annotated[FilterForm, Depends()]


def show_board(visit: RequestContext, kind: BoardKind, asked: FilterForm) -> HTMLResponse:
    """A leaderboard, with the cells that it is made of."""
    board = visit.request.app.state.boards.show(visit.viewer, kind, asked.filters)
    with visit.folder.database.reading() as session:
        chosen = chosen_cells(visit.viewer, kind, asked.filters._replace(data=board.data))
        cells = session.scalars(chosen.limit(_SHOWN)).all()
        names = component_names(session, visit.viewer)
        data = session.scalars(components_for(visit.viewer).where(ComponentRow.kind == "data")).all()
    shown = {"names": names, "data": data, "cells": [describe_cell(row) for row in cells], "asked": asked}
    shown["query"] = urlencode({"kind": kind, **{name: value for name, value in asked._asdict().items() if value}})
    return render(visit, "board.html", board=board, kind=kind, kinds=BOARDS, knowledge=[*KNOWLEDGE], **shown)


@router.get("/")
def boards(visit: Page, asked: Asked, kind: BoardKind = "models") -> HTMLResponse:
    """The leaderboards."""
    return show_board(visit, kind, asked)


@router.get("/cells")
def cells(visit: Page, component: int = 0) -> HTMLResponse:
    """The finished cells, of one component or of all."""
    with visit.folder.database.reading() as session:
        row = find_component(session, visit.viewer, component) if component else None
        rows = session.scalars(of_component(visit.viewer, component).limit(_SHOWN)).all()
    about = f" of {row.name} {row.version}" if row else ""
    return render(visit, "cells.html", cells=[describe_cell(each) for each in rows], about=about)


@router.get("/behind")
def runs_behind_score(visit: Page, asked: Asked, kind: BoardKind = "models", subject: str = "") -> HTMLResponse:
    """The cells that a mean of a leaderboard is computed from, no others."""
    board = visit.request.app.state.boards.show(visit.viewer, kind, asked.filters)
    numbers = next((row.cells for row in board.rows if row.name == subject), None)
    if numbers is None:
        raise NotFoundError(f"expected a subject of the leaderboard, got {subject[:100]!r}")
    with visit.folder.database.reading() as session:
        rows = session.scalars(cells_for(visit.viewer).where(CellRow.id.in_(numbers)).order_by(CellRow.id)).all()
    about = f" behind the score of {subject}"
    return render(visit, "cells.html", cells=[describe_cell(each) for each in rows], about=about)


@router.get("/cells/{number}")
def cell(visit: Page, number: int) -> HTMLResponse:
    """One cell: its numbers, its components, and how to make it again."""
    with visit.folder.database.reading() as session:
        row = find_cell(session, visit.viewer, number)
        numbers = [each for each in (row.model_id, row.defence_id, *row.attack_ids, row.data_id) if each]
        parts = [find_component(session, visit.viewer, each) for each in numbers]
    line, config = rerun_command(visit.folder, row)
    return render(visit, "cell.html", cell=describe_cell(row), row=row, parts=parts, line=line, config=config)


@router.get("/cells/{number}/file")
def cell_file(visit: Page, number: int) -> FileResponse:
    """The record of a cell, a Parquet file."""
    return send_cell(visit, number)


def send_cell(visit: RequestContext, number: int) -> FileResponse:
    """The record of a cell that may be seen."""
    with visit.folder.database.reading() as session:
        row = find_cell(session, visit.viewer, number)
    path = visit.folder.task(row.task_id) / "results" / "cells" / row.file
    if not path.is_file():
        raise NotFoundError("expected the file of the cell, found none")
    return FileResponse(path, media_type="application/octet-stream", filename=row.file)


@router.get("/compare")
def compare(visit: Page, first: int = 0, second: int = 0) -> HTMLResponse:
    """Two components of a kind on what both met."""
    with visit.folder.database.reading() as session:
        components = session.scalars(components_for(visit.viewer).order_by(ComponentRow.kind, ComponentRow.name)).all()
        pair = [find_component(session, visit.viewer, each) for each in (first, second) if each]
        rows = compare_cells(session, visit.viewer, *pair) if len(pair) == 2 else []
    return render(visit, "compare.html", components=components, pair=pair, rows=rows)


def find_cell(session: Session, viewer: Viewer, number: int) -> CellRow:
    """A cell that the viewer may see, or NotFoundError."""
    row = session.scalar(cells_for(viewer).where(CellRow.id == (number if 0 < number < 2**31 else -1)))
    if row is None:
        raise NotFoundError(f"expected the number of a cell, got {number}: there is none that you can see")
    return row


def of_component(viewer: Viewer, component: int) -> Any:
    """The cells of a component, the newest first; 0: of all."""
    chosen = cells_for(viewer).order_by(CellRow.id.desc())
    if not component:
        return chosen
    return chosen.where(or_(*(getattr(CellRow, name) == component for name in _PARTS)))


def describe_cell(row: CellRow) -> dict[str, Any]:
    """What tables and answers say of a cell: share fooled with its interval (Clopper and Pearson).

    `fooled` is a whole number, but for a random model, where images count by the share of their draws.
    """
    low, high = proportion_interval(row.fooled, row.attacked)
    names = ("id", "task_id", "key", "state", "reason", "model", "attack", "norm", "epsilon", "targeted", "knowledge")
    numbers = ("seed", "images", "attacked", "fooled", "reused", "created", *_PARTS, "attack_ids")
    about = {name: getattr(row, name) for name in (*names, *numbers)}
    about["fooled"] = int(row.fooled) if row.fooled == int(row.fooled) else row.fooled
    about |= {"parameters": json.loads(row.parameters), "worst_case": row.attack_id is None}
    is_none = not row.attacked
    shares = {"share": None if is_none else row.fooled / row.attacked, "low": low, "high": high}
    return {**about, **{name: None if is_none else value for name, value in shares.items()}}


def component_names(session: Session, viewer: Viewer) -> dict[int, str]:
    """What the components that a viewer may see are called: creator/name version."""
    creators = {row.id: row.name for row in session.scalars(select(UserRow))}
    rows = session.scalars(components_for(viewer)).all()
    return {row.id: f"{creators[row.creator_id]}/{row.name} {row.version}" for row in rows}


def compare_cells(session: Session, viewer: Viewer, first: ComponentRow, second: ComponentRow) -> list[dict[str, Any]]:
    """Pairs of cells that differ in the component alone, with the difference of the shares that were fooled.

    Two attacks have parameters of their own: there each setting of one is held against each of the other. The interval
    (Newcombe's, from Clopper and Pearson's of both) takes the images of both for independent: it is wider than it has
    to be where they are the same images.
    """
    if first.kind != second.kind:
        names = f"{first.kind} {first.name} and {second.kind} {second.name}"
        raise InvalidInput(f"expected two components of a kind, got {names}")
    ours, theirs = (_by_rest(session, viewer, component) for component in (first, second))
    return [
        _compare_pair(one, other)
        for key in ours
        if key in theirs
        for one, other in itertools.product(ours[key].values(), theirs[key].values())
    ][:_PAIRS]


def _by_rest(session: Session, viewer: Viewer, component: ComponentRow) -> dict[Any, dict[str, CellRow]]:
    """The finished cells of a component by all that it is not, and of each the newest by its key."""
    column = f"{component.kind}_id"
    mine = cells_for(viewer).where(getattr(CellRow, column) == component.id, CellRow.state == "done")
    names = {*_PARTS, "norm", "epsilon", "targeted", "images", "seed", "parameters", "terms"} - {column}
    names -= {"parameters"} if component.kind == "attack" else set()
    by_rest: dict[Any, dict[str, CellRow]] = {}
    for row in session.scalars(mine.where(CellRow.attacked > 0).order_by(CellRow.id.desc()).limit(_READ)):
        rest = [getattr(row, name) for name in sorted(names)]
        # A worst case of other attacks, or what another library of the same component made, is something else.
        rest.append("" if component.kind == "attack" else row.attack)
        by_rest.setdefault(tuple(rest), {}).setdefault(row.key, row)
    return by_rest


def _compare_pair(one: CellRow, other: CellRow) -> dict[str, Any]:
    shares = [(row.fooled / row.attacked, *proportion_interval(row.fooled, row.attacked)) for row in (one, other)]
    low, high = difference_bounds(shares[0], shares[1], 0.0)
    difference = shares[0][0] - shares[1][0]
    return {"first": describe_cell(one), "second": describe_cell(other), "difference": difference} | {
        "low": low,
        "high": high,
    }


def _day(text: str) -> float:
    if not text:
        return 0.0
    try:
        return float(calendar.timegm(time.strptime(text, "%Y-%m-%d")))
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"expected a day as YYYY-MM-DD, got {text[:20]!r}") from error
