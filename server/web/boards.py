"""Leaderboards of models, attacks and defences, computed with `davylamp.scoring` from the runs that a user may see."""

import calendar
import contextlib
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, get_args

import pandas as pd
from fastapi import Query
from pydantic import AfterValidator, BeforeValidator
from sqlalchemy import Select, func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from ...adapters.parameters import parse_number
from ...conventions import KNOWLEDGE
from ...engine.store.data_frames import load_outcomes
from ...errors import DavylampError, InvalidInput
from ...scoring.ranking import Ranking, rank_responses
from ...scoring.responses import Subjects, build_responses, subjects_of
from ..database.permissions import Viewer, cells_for, private_scope, visibility_count
from ..database.records import CellRow, ComponentRow, UserRow
from ..folder import ServerFolder
from .comparable_subjects import comparable_cells

BoardKind = Literal["models", "attacks", "defences"]
BOARDS: tuple[BoardKind, ...] = get_args(BoardKind)
_COLUMN = {"models": CellRow.model_id, "attacks": CellRow.attack_id, "defences": CellRow.defence_id}
_SUBJECTS: Mapping[str, Subjects] = {"models": "models", "attacks": "implementations", "defences": "defences"}
Method = Literal["mean", "irt"]
METHODS: tuple[Method, ...] = get_args(Method)
YesNo = Literal["", "yes", "no"]
_KEPT, _FRAMES = 64, 64
_CLOSE = 1e-4  # relative tolerance of radii
_MOST_FITS = 4  # fits that wait
_FITTING = "the item response model is being fitted; load this page again in a moment"


def _read_radius(text: Any) -> Any:
    return parse_number(text, "a radius") if isinstance(text, str) and text.strip() else text or 0.0


def _check_knowledge(text: str) -> str:
    if text and text not in KNOWLEDGE:
        raise InvalidInput(f"expected knowledge as one of {', '.join(KNOWLEDGE)}, got {text[:40]!r}")
    return text


def _read_day(text: Any) -> float:
    try:
        return float(calendar.timegm(time.strptime(text, "%Y-%m-%d"))) if text else 0.0
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"expected a day as YYYY-MM-DD, got {text[:20]!r}") from error


class Filters(NamedTuple):
    """Which runs a leaderboard uses, and how it scores them. A field that is "" or 0 does not restrict the runs.

    The fields are query parameters of a request, in which "" stands for 0, too.

    Args:
        data: number of the data's component.
        norm: norm of the threat model, such as "linf".
        epsilon: radius of the threat model.
        targeted: "yes" for targeted attacks only, or "no" for untargeted attacks only.
        knowledge: attacker knowledge: "white-box", "black-box", "score", "decision" or "transfer".
        creator: name of the user to whom the ranked components belong.
        since: earliest time at which a run was recorded, as a Unix timestamp.
        worst_case: "yes" for worst-case runs only. Other values exclude worst-case runs. In a worst-case run, each
            attack runs only on images that no earlier attack fooled, so its results are not comparable.
        method: "mean" to score by the mean response, or "irt" to score by the ability in an item response model.
    """

    data: Annotated[int, BeforeValidator(lambda text: text or 0), Query(ge=0, lt=10**9)] = 0
    norm: Annotated[str, Query(max_length=20)] = ""
    epsilon: Annotated[float, BeforeValidator(_read_radius), Query(description="radius, such as 8/255")] = 0.0
    targeted: YesNo = ""
    knowledge: Annotated[str, AfterValidator(_check_knowledge), Query(description=", ".join(KNOWLEDGE))] = ""
    creator: Annotated[str, Query(max_length=64, description="user name of the component's owner")] = ""
    since: Annotated[float, BeforeValidator(_read_day), Query(description="first day, YYYY-MM-DD")] = 0.0
    worst_case: Annotated[YesNo, AfterValidator(lambda text: text.removeprefix("no"))] = ""
    method: Annotated[Method, Query(description="score: mean (mean response) or irt (ability)")] = "mean"


class BoardRow(NamedTuple):
    """Row of a leaderboard.

    Args:
        name: name of the ranked model, attack or defence.
        component: number of the component. None for models without a defence on a leaderboard of defences.
        rank: rank, from 1.
        rank_low: best rank in the 95 % interval.
        rank_high: worst rank in the 95 % interval.
        score: mean response or ability.
        low: lower bound of the 95 % interval of the score.
        high: upper bound of the 95 % interval of the score.
        cells: numbers of the runs from which the score was computed.
        group: tie group, as letters. Rows that share a letter do not differ significantly, with a correction for all
            pairs of rows.
    """

    name: str
    component: int | None
    rank: int
    rank_low: int
    rank_high: int
    score: float
    low: float
    high: float
    cells: tuple[int, ...]
    group: str = ""


@dataclass(frozen=True)
class Board:
    """A leaderboard.

    Args:
        rows: the ranked rows, the best first. Empty if no ranking is possible.
        reason: reason why no ranking is possible; "" if there is a ranking.
        notes: notes on the ranking.
        cells: number of runs that were used.
        data: number of the data's component.
        made: time at which the leaderboard was computed, as a Unix timestamp.
        tasks: numbers of the tasks whose runs were used.
        score: name of the scores, "mean" or "ability".
    """

    rows: tuple[BoardRow, ...] = ()
    reason: str = ""
    notes: tuple[str, ...] = ()
    cells: int = 0
    data: int = 0
    made: float = field(default_factory=time.time)
    tasks: tuple[int, ...] = ()
    score: str = "mean"


class Boards:
    """Computes leaderboards, and caches them for all users with the same permissions.

    If results have changed, a leaderboard is computed again in the background, and the older leaderboard is shown in
    the meantime. Item response models are always fitted in the background, because a fit can take minutes.

    Args:
        folder: folder of the server.
        made: function that is called with each computed leaderboard, its viewer, its kind and its filters.
    """

    def __init__(self, folder: ServerFolder, made: Callable[[Viewer, BoardKind, Filters, Board], object]):
        self.folder, self._made = folder, made
        self._kept: OrderedDict[Any, tuple[Any, Board]] = OrderedDict()
        self._frames: OrderedDict[tuple[int, ...], pd.DataFrame] = OrderedDict()
        self._lock = threading.Lock()
        self._making = {method: threading.Lock() for method in METHODS}
        self._busy: set[Any] = set()

    def show(self, viewer: Viewer, kind: BoardKind, filters: Filters) -> Board:
        """Return a leaderboard from the runs that a viewer may see.

        If an item response model has to be fitted first, a leaderboard without rows is returned, with a reason.

        """
        with self.folder.database.reading() as session:
            rights = (private_scope(session, viewer), visibility_count(session))
            newest = session.execute(
                cells_for(viewer).with_only_columns(func.count(CellRow.id), func.max(CellRow.id))
            ).one()
        key, state = (rights, kind, filters), tuple(newest)
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and kept[0] == state:
                return kept[1]
            if filters.method == "irt" or (kept is not None and kept[1].rows):
                waiting = sum(other[-1].method == "irt" for other in self._busy)
                if key not in self._busy and (filters.method != "irt" or waiting < _MOST_FITS):
                    self._busy.add(key)
                    given = (viewer, kind, filters, key, state)
                    threading.Thread(target=self._make_again, args=given, daemon=True).start()
                # An older one, but for the same permissions.
                return kept[1] if kept is not None and kept[1].rows else Board(reason=_FITTING, data=filters.data)
        return self._make(viewer, kind, filters, key, state)

    def _make_again(self, *given: Any) -> None:
        with contextlib.suppress(SQLAlchemyError):  # unavailable or closed: recomputed on the next request
            self._make(*given)

    def _make(self, viewer: Viewer, kind: BoardKind, filters: Filters, key: Any, state: Any) -> Board:
        try:
            with self._making[filters.method]:
                board = self._rank(viewer, kind, filters)
            self._made(viewer, kind, filters, board)
            with self._lock:
                self._kept[key] = (state, board)
                self._kept.move_to_end(key)
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
            return board
        finally:
            with self._lock:
                self._busy.discard(key)

    def _rank(self, viewer: Viewer, kind: BoardKind, filters: Filters) -> Board:
        with self.folder.database.reading() as session:
            rows = session.scalars(chosen_cells(viewer, kind, filters)).all()
            states = _states_of(session, {row.task_id for row in rows})
        if not rows:
            return Board(reason="no finished run matches these filters", data=filters.data)
        # Only runs on the same images can be ranked; by default those with most runs.
        data = filters.data or Counter(row.data_id for row in rows).most_common(1)[0][0]
        kept, odd = comparable_cells(kind, [row for row in rows if row.data_id == data])
        cells = {row.key: row for row in kept}
        results = self._results(cells, states)
        if results is None:
            return Board(reason="the results of these runs cannot be read", cells=len(cells), data=data)
        try:
            responses = build_responses(results, _SUBJECTS[kind])
            matrix = responses.values, responses.subjects, responses.images
            ranking = rank_responses(*matrix, scoring=filters.method, shares=responses.shares)
        except ValueError as error:
            return Board(reason=str(error), cells=len(cells), data=data)
        notes = (f"{ranking.label} over {len(responses.items)} items", *responses.notes, *ranking.notes)
        if odd:
            line = f"omitted, because they have too few results in common with the other rows: {', '.join(odd[:5])}"
            notes = (*notes, line + (f" and {len(odd) - 5} more" if len(odd) > 5 else ""))
        tasks = tuple(sorted({row.task_id for row in cells.values()}))
        behind = _cells_behind(results, kind, cells)
        rows = _rows(ranking, kind, behind)
        return Board(rows, "", notes, len(cells), data, tasks=tasks, score=ranking.score_name)

    def _results(self, cells: Mapping[str, CellRow], states: Mapping[int, tuple[int, int]]) -> pd.DataFrame | None:
        """Return the results of runs on each image, as a data frame; None if the results of no run can be read."""
        keys: dict[int, list[str]] = {}
        for key, row in cells.items():
            keys.setdefault(row.task_id, []).append(key)
        frames = [(self._frame(task, states[task]), mine) for task, mine in keys.items()]
        known = [frame.loc[frame["cell"].isin(mine)] for frame, mine in frames if not frame.empty]
        results = pd.concat(known, ignore_index=True) if known else pd.DataFrame()
        return None if results.empty else results.loc[~results[["cell", "image"]].duplicated()]

    def _frame(self, task: int, state: tuple[int, int]) -> pd.DataFrame:
        """Return the results of all runs of a task. The data frame is cached until `state` changes."""
        key = (task, *state)
        if key not in self._frames:
            try:
                frame = load_outcomes(self.folder.task(task) / "results")
            except DavylampError:  # perhaps for a moment only: it is not kept
                return pd.DataFrame()
            self._frames[key] = frame
            while len(self._frames) > _FRAMES:
                self._frames.popitem(last=False)
        self._frames.move_to_end(key)
        return self._frames[key]


def chosen_cells(viewer: Viewer, kind: BoardKind, filters: Filters) -> Select[CellRow]:
    """Return a query for the finished runs that a leaderboard uses.

    A leaderboard of attacks uses only runs on undefended models. On a leaderboard of models, a defended model
    MODEL+DEFENCE is a model of its own.
    """
    chosen = cells_for(viewer).where(CellRow.state == "done")
    of_several = filters.worst_case == "yes"
    chosen = chosen.where(CellRow.attack_id.is_(None) if of_several else CellRow.attack_id.is_not(None))
    if kind == "attacks":
        chosen = chosen.where(CellRow.defence_id.is_(None))
    if filters.data:
        chosen = chosen.where(CellRow.data_id == filters.data)
    if filters.norm:
        chosen = chosen.where(CellRow.norm == filters.norm)
    if filters.epsilon:
        close = filters.epsilon * _CLOSE
        chosen = chosen.where(CellRow.epsilon.between(filters.epsilon - close, filters.epsilon + close))
    if filters.targeted:
        chosen = chosen.where(CellRow.targeted.is_(filters.targeted == "yes"))
    if filters.knowledge:
        chosen = chosen.where(CellRow.knowledge.in_(KNOWLEDGE[filters.knowledge]))
    if filters.since:
        chosen = chosen.where(CellRow.created >= filters.since)
    if filters.creator:
        made = select(ComponentRow.id).join(UserRow, UserRow.id == ComponentRow.creator_id)
        chosen = chosen.where(_COLUMN[kind].in_(made.where(UserRow.name == filters.creator)))
    return chosen.order_by(CellRow.id)


def is_near(epsilon: float | None, asked: float) -> bool:
    """Return whether the radius of a run equals a requested radius, except for rounding. False if it is None."""
    return epsilon is not None and abs(epsilon - asked) <= asked * _CLOSE


def count_fooled(session: Session, viewer: Viewer, component: int) -> list[tuple[float, float]]:
    """Return the course of a component's fooling rate over time.

    Returns:
        For each run, the time at which it was recorded (Unix timestamp) and the fooling rate over all runs until then.
        A run that later tasks reused is used once.
    """
    mine = (CellRow.model_id == component) | (CellRow.attack_id == component) | (CellRow.defence_id == component)
    counted = (mine, CellRow.state == "done", CellRow.attack_id.is_not(None))
    rows = session.scalars(cells_for(viewer).where(*counted).order_by(CellRow.created)).all()
    first: dict[str, CellRow] = {}
    for row in rows:
        first.setdefault(row.key, row)
    attacked = fooled = 0
    course = []
    for row in first.values():
        attacked, fooled = attacked + row.attacked, fooled + row.fooled
        course.append((row.created, fooled / attacked if attacked else float("nan")))
    return course


def _states_of(session: Session, tasks: Collection[int]) -> dict[int, tuple[int, int]]:
    """Return a value for each task that changes when the task gets further runs, by number of the task.

    The value consists of the number of runs and the number of the newest run.
    """
    counted = select(CellRow.task_id, func.count(CellRow.id), func.max(CellRow.id)).group_by(CellRow.task_id)
    return {task: (count, newest) for task, count, newest in session.execute(counted) if task in tasks}


def _cells_behind(results: pd.DataFrame, kind: BoardKind, cells: Mapping[str, CellRow]) -> dict[str, list[CellRow]]:
    names = subjects_of(results, _SUBJECTS[kind])
    pairs = pd.DataFrame({"name": names, "cell": results.loc[names.index, "cell"]}).drop_duplicates()
    behind: dict[str, list[CellRow]] = {}
    for name, key in zip(pairs["name"], pairs["cell"], strict=True):
        behind.setdefault(str(name), []).append(cells[key])
    return behind


def _rows(ranking: Ranking, kind: BoardKind, behind: Mapping[str, Sequence[CellRow]]) -> tuple[BoardRow, ...]:
    made = []
    for place, name in enumerate(ranking.subjects):
        counted = behind.get(name, [])
        component = getattr(counted[0], _COLUMN[kind].key) if counted else None
        ranks = (int(each[place]) for each in (ranking.rank, ranking.rank_low, ranking.rank_high))
        scores = (float(each[place]) for each in (ranking.score, ranking.low, ranking.high))
        ids = tuple(row.id for row in counted)
        made.append(BoardRow._make((name, component, *ranks, *scores, ids, ranking.groups[place])))
    return tuple(sorted(made, key=lambda row: (row.rank, row.name)))
