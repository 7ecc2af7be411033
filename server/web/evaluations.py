"""The web page with finished tasks and their mean accuracy under attack, and the effects of defences."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse
from sqlalchemy import select
from sqlalchemy.orm import Session, selectinload

from ...conventions import KNOWLEDGE
from ..components.registration import find_component
from ..database.permissions import Viewer, tasks_for
from ..database.records import KINDS, CellRow, ComponentRow, TaskRow, UserRow
from .boards import BOARDS, Filters, is_near
from .rendering import render
from .request_context import Page

router = APIRouter(include_in_schema=False)
Sort = Literal["newest", "oldest", "highest", "lowest"]
SORTS: tuple[Sort, ...] = get_args(Sort)
AskedSort = Annotated[Sort, Query(description="order by time (newest, oldest) or by score (highest, lowest)")]
_SHOWN, _EFFECTS_SHOWN = 200, 300


@router.get("/evaluations")
def evaluations(visit: Page, sort: AskedSort = "newest") -> HTMLResponse:
    """Show the finished tasks with their mean accuracy under attack."""
    with visit.folder.database.reading() as session:
        rows = list_evaluations(session, visit.viewer, sort)
    return render(visit, "evaluations.html", rows=rows, shown=_SHOWN, sort=sort, sorts=SORTS, kinds=BOARDS)


def list_evaluations(session: Session, viewer: Viewer, sort: Sort) -> list[dict[str, Any]]:
    """Return descriptions of at most 200 finished tasks that a viewer may see.

    The keys follow the columns of the leaderboard of HikDeep-Sec (Zhang et al. 2023). "score" is the mean accuracy
    under attack (see `TaskSummary`), with the bounds "score_low" and "score_high" of its interval. These three are None
    if unknown.
    """
    is_unknown = TaskRow.score.is_(None)
    orders: dict[Sort, Sequence[Any]] = {
        "newest": (TaskRow.created.desc(), TaskRow.id.desc()),
        "oldest": (TaskRow.created, TaskRow.id),
        "highest": (is_unknown, TaskRow.score.desc(), TaskRow.id),
        "lowest": (is_unknown, TaskRow.score, TaskRow.id),
    }
    chosen = tasks_for(viewer).where(TaskRow.state == "done").order_by(*orders[sort]).limit(_SHOWN)
    tasks = session.scalars(chosen.options(selectinload(TaskRow.components))).all()
    numbers = [task.id for task in tasks]
    runs: dict[int, list[str]] = {}
    finished = select(CellRow.task_id, CellRow.knowledge).where(CellRow.state == "done")
    for number, knowledge in session.execute(finished.where(CellRow.task_id.in_(numbers))):
        runs.setdefault(number, []).append(knowledge)
    return [_describe(task, runs.get(task.id, [])) for task in tasks]


def board_effects(session: Session, viewer: Viewer, filters: Filters) -> list[dict[str, Any]]:
    """Return the effects of defences in finished tasks, newest task first, for a leaderboard of defences.

    An effect on clean images is included if an effect of the same model, defence and data under attack passes the
    filters.

    Returns:
        Dictionaries as in `TaskSummary.effects`, with the number of the task as "task".
    """
    chosen = tasks_for(viewer).where(TaskRow.state == "done", TaskRow.effects.is_not(None))
    if filters.since:
        chosen = chosen.where(TaskRow.finished >= filters.since)
    rows = []
    for task in session.scalars(chosen.order_by(TaskRow.id.desc()).limit(_SHOWN)):
        effects = task.effects or []
        kept = [row["examples"] != "clean" and _passes(row, filters) for row in effects]
        pairs = {_pair(row) for row, passes in zip(effects, kept, strict=True) if passes}
        rows += [
            {**row, "task": task.id}
            for row, passes in zip(effects, kept, strict=True)
            if passes or (row["examples"] == "clean" and _pair(row) in pairs)
        ]
    if filters.creator:
        made = select(ComponentRow.id).join(UserRow, UserRow.id == ComponentRow.creator_id)
        known = set(session.scalars(made.where(UserRow.name == filters.creator)))
        rows = [row for row in rows if row["defence"] in known]
    return rows[:_EFFECTS_SHOWN]


def effects_names(session: Session, viewer: Viewer, rows: Iterable[dict[str, Any]]) -> dict[int, str]:
    """Return the names "NAME VERSION" of the models and defences in effects of defences, by component number."""
    numbers = {row[name] for row in rows for name in ("model", "defence")}
    parts = [find_component(session, viewer, number) for number in numbers]
    return {part.id: f"{part.name} {part.version}" for part in parts}


def _describe(task: TaskRow, runs: Sequence[str]) -> dict[str, Any]:
    names: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for row in task.components:
        names[row.kind].append(f"{row.name} {row.version}")
    access = dict.fromkeys("black-box" if each in KNOWLEDGE["black-box"] else each for each in runs)
    kind = "worst case" if task.settings["stop_when_fooled"] else "defence" if names["defence"] else "attack"
    about = {"id": task.id, "name": task.title or f"task {task.id}", "type": kind, "access": sorted(access)}
    about |= {"creator": task.owner.name, "created": task.created, "finished": task.finished, "runs": len(runs)}
    scores = {name: getattr(task, name) for name in ("score", "score_low", "score_high")}
    return {**about, "examples": task.settings.get("examples", "own"), **names, **scores}


def _passes(row: dict[str, Any], filters: Filters) -> bool:
    known = (
        not filters.data or row["data"] == filters.data,
        not filters.norm or row["norm"] == filters.norm,
        not filters.epsilon or is_near(row["epsilon"], filters.epsilon),
        not filters.targeted or row["targeted"] == (filters.targeted == "yes"),
        not filters.knowledge or row["knowledge"] in KNOWLEDGE[filters.knowledge],
        row["examples"].startswith("worst-case(") == (filters.worst_case == "yes"),
    )
    return all(known)


def _pair(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["model"], row["defence"], row["data"]
