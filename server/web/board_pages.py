"""Web pages with results: leaderboards, runs, and comparisons of two components."""

import itertools
import json
import shlex
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends
from fastapi.responses import FileResponse, HTMLResponse
from sqlalchemy import or_
from sqlalchemy.orm import Session

from ...conventions import KNOWLEDGE
from ...engine.attack_run import AttackRun
from ...engine.plan.config_file import write_config
from ...engine.plan.rerun import configs_of
from ...engine.store.store import DamagedRecordError, ResultsStore
from ...errors import DavylampError, InvalidInput
from ...intervals import difference_bounds, proportion_interval
from ..components.registration import NotFoundError, find_component, find_visible
from ..database.permissions import Viewer, cells_for, components_for
from ..database.records import CellRow, ComponentRow
from ..folder import ServerFolder
from .boards import BOARDS, METHODS, BoardKind, Filters, chosen_cells
from .evaluations import board_effects, effects_names
from .rendering import render
from .request_context import Page, RequestContext

router = APIRouter(include_in_schema=False)
_SHOWN, _PAIRS, _READ = 200, 1000, 5000
_PARTS = ("model_id", "attack_id", "defence_id", "data_id")


Asked = Annotated[Filters, Depends()]


@router.get("/")
def boards(visit: Page, asked: Asked, kind: BoardKind = "models") -> HTMLResponse:
    """Show a leaderboard of models, attacks or defences. This is the first page of the server."""
    board = visit.request.app.state.boards.show(visit.viewer, kind, asked)
    filters, texts = asked._replace(data=board.data), visit.request.query_params
    with visit.folder.database.reading() as session:
        cells = session.scalars(chosen_cells(visit.viewer, kind, filters).limit(_SHOWN)).all()
        names = component_names(session, visit.viewer)
        data = session.scalars(components_for(visit.viewer).where(ComponentRow.kind == "data")).all()
        effects = board_effects(session, visit.viewer, filters) if kind == "defences" else []
        parts = effects_names(session, visit.viewer, effects)
    shown = {"names": names, "data": data, "cells": [describe_cell(row) for row in cells], "asked": texts}
    shown |= {"effects": effects, "parts": parts, "methods": METHODS}
    chosen = {name: value for name, value in texts.items() if value and name in Filters._fields}
    shown["query"] = urlencode({"kind": kind, **chosen})
    return render(visit, "board.html", board=board, kind=kind, kinds=BOARDS, knowledge=[*KNOWLEDGE], **shown)


@router.get("/cells")
def cells(visit: Page, component: int = 0) -> HTMLResponse:
    """Show the finished runs, newest first. `component` shows only the runs of this component."""
    with visit.folder.database.reading() as session:
        row = find_component(session, visit.viewer, component) if component else None
        rows = session.scalars(of_component(visit.viewer, component).limit(_SHOWN)).all()
    about = f" of {row.name} {row.version}" if row else ""
    return render(visit, "cells.html", cells=[describe_cell(each) for each in rows], about=about)


@router.get("/behind")
def runs_behind_score(visit: Page, asked: Asked, kind: BoardKind = "models", subject: str = "") -> HTMLResponse:
    """Show the runs from which the score of one row of a leaderboard was computed. `subject` is the row's name."""
    board = visit.request.app.state.boards.show(visit.viewer, kind, asked)
    numbers = next((row.cells for row in board.rows if row.name == subject), None)
    if numbers is None:
        raise NotFoundError(f"the leaderboard has no row {subject[:100]!r}")
    with visit.folder.database.reading() as session:
        rows = session.scalars(cells_for(visit.viewer).where(CellRow.id.in_(numbers)).order_by(CellRow.id)).all()
    about = f" behind the score of {subject}"
    return render(visit, "cells.html", cells=[describe_cell(each) for each in rows], about=about)


@router.get("/cells/{number}")
def cell(visit: Page, number: int) -> HTMLResponse:
    """Show one run with its results, its components, and the command that repeats the run."""
    with visit.folder.database.reading() as session:
        row = find_cell(session, visit.viewer, number)
        numbers = [each for each in (row.model_id, row.defence_id, *row.attack_ids, row.data_id) if each]
        parts = [find_component(session, visit.viewer, each) for each in numbers]
    line, config = rerun_command(visit.folder, row)
    return render(visit, "cell.html", cell=describe_cell(row), row=row, parts=parts, line=line, config=config)


@router.get("/cells/{number}/file")
def cell_file(visit: Page, number: int) -> FileResponse:
    """Return the results of a run on each image, as a Parquet file."""
    return send_cell(visit, number)


def send_cell(visit: RequestContext, number: int) -> FileResponse:
    """Build the response with the file of a run, which contains the results on each image."""
    with visit.folder.database.reading() as session:
        row = find_cell(session, visit.viewer, number)
    path = visit.folder.task(row.task_id) / "results" / "cells" / row.file
    if not path.is_file():
        raise NotFoundError("the file of this run does not exist")
    return FileResponse(path, media_type="application/octet-stream", filename=row.file)


@router.get("/compare")
def compare(visit: Page, first: int = 0, second: int = 0) -> HTMLResponse:
    """Show a comparison of two components of the same kind, by pairs of runs that differ only in the component."""
    with visit.folder.database.reading() as session:
        components = session.scalars(components_for(visit.viewer).order_by(ComponentRow.kind, ComponentRow.name)).all()
        pair = [find_component(session, visit.viewer, each) for each in (first, second) if each]
        rows = compare_cells(session, visit.viewer, *pair) if len(pair) == 2 else []
    return render(visit, "compare.html", components=components, pair=pair, rows=rows)


def find_cell(session: Session, viewer: Viewer, number: int) -> CellRow:
    """Return the run with a given number.

    Raises:
        NotFoundError: If the run does not exist, or if the viewer may not see the run.
    """
    return find_visible(session, cells_for(viewer), CellRow.id, number, "run")


def of_component(viewer: Viewer, component: int) -> Any:
    """Return a query for the runs of a component that a viewer may see, newest first. 0 stands for all components."""
    chosen = cells_for(viewer).order_by(CellRow.id.desc())
    if not component:
        return chosen
    return chosen.where(or_(*(getattr(CellRow, name) == component for name in _PARTS)))


def describe_cell(row: CellRow) -> dict[str, Any]:
    """Return the description of a run for web pages and the JSON interface.

    The keys are columns of `CellRow`, "worst_case" (whether the run combines several attacks), and the fooling rate
    "share" with the bounds "low" and "high" of its Clopper-Pearson interval. For a randomised model, "fooled" is a sum
    of rates over samples, which may be fractional.
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
    """Return the names "OWNER/NAME VERSION" of the components that a viewer may see, by component number."""
    rows = session.scalars(components_for(viewer)).all()
    return {row.id: f"{row.creator.name}/{row.name} {row.version}" for row in rows}


def compare_cells(session: Session, viewer: Viewer, first: ComponentRow, second: ComponentRow) -> list[dict[str, Any]]:
    """Compare two components by all pairs of runs that differ only in the component.

    Attacks have different parameters. Each run of one attack is therefore compared with each run of the other attack,
    whatever their parameters are.

    Returns:
        A dictionary for each pair: descriptions of the runs ("first", "second"), the difference of their fooling rates
        ("difference"), and the bounds of its interval ("low", "high"). The interval is Newcombe's, from the
        Clopper-Pearson intervals of the two rates. It assumes independent images, so it is wider than necessary if the
        images are the same.
    """
    if first.kind != second.kind:
        names = f"{first.kind} {first.name} and {second.kind} {second.name}"
        raise InvalidInput(f"expected two components of the same kind, got {names}")
    ours, theirs = (_by_rest(session, viewer, component) for component in (first, second))
    return [
        _compare_pair(one, other)
        for key in ours
        if key in theirs
        for one, other in itertools.product(ours[key].values(), theirs[key].values())
    ][:_PAIRS]


def _by_rest(session: Session, viewer: Viewer, component: ComponentRow) -> dict[Any, dict[str, CellRow]]:
    """Group the finished runs of a component by all settings except the component.

    Returns:
        The runs of each group, by key of the run. If several runs have the same key, the newest run is used.
    """
    column = f"{component.kind}_id"
    mine = cells_for(viewer).where(getattr(CellRow, column) == component.id, CellRow.state == "done")
    names = {*_PARTS, "norm", "epsilon", "targeted", "images", "seed", "parameters", "terms"} - {column}
    names -= {"parameters"} if component.kind == "attack" else set()
    by_rest: dict[Any, dict[str, CellRow]] = {}
    for row in session.scalars(mine.where(CellRow.attacked > 0).order_by(CellRow.id.desc()).limit(_READ)):
        rest = [getattr(row, name) for name in sorted(names)]
        # Worst cases of different attacks, and different libraries of one component, are not comparable.
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


def rerun_command(folder: ServerFolder, row: CellRow) -> tuple[str, str]:
    """Return the command that repeats a run, and the same settings as a TOML file for `davylamp evaluate`.

    Files of components have the names OWNER/KIND-NAME-VERSION/FILE in the command and the TOML file.

    Returns:
        The command and the content of the TOML file. Both are "" if the results of the run cannot be read.
    """
    try:
        record = ResultsStore(folder.task(row.task_id) / "results", create=False).read("cells", row.key)
        cell = AttackRun.from_record(record.meta)
        (config,) = configs_of([cell])
        return _line(cell), write_config(config)
    except (DamagedRecordError, DavylampError, FileNotFoundError, KeyError, TypeError, ValueError):
        return "", ""


def _line(cell: AttackRun) -> str:
    if cell.search.kind == "worst-case":  # parameters of several attacks need the file
        return "davylamp evaluate cell.toml -o again"
    threat, subject = cell.as_planned.threat_model, cell.subject
    options: list[tuple[str, object]] = [("models", subject.model), ("attacks", cell.attack), ("norm", threat.norm)]
    if threat.epsilon is not None:
        options.append(("epsilon", threat.epsilon))
    if cell.target:
        options.append(("target", cell.target))
    options += [("param", f"{name}={value}") for name, value in cell.parameters.items()]
    options += [("data", subject.data), ("limit", subject.images), ("seed", cell.seed)]
    words = [word for name, value in options for word in (f"--{name}", str(value))]
    flags = ["--defaults", *(["--eight-bit"] if cell.pixels else [])]
    return shlex.join(["davylamp", "evaluate", *words, *flags, "-o", "again"])
