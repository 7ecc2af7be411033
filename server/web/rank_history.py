"""Records the ranks of components on the public leaderboards, so that pages can show past ranks."""

import contextlib
import threading
import time
import traceback

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from ..database.permissions import VISITOR, Viewer, cells_for, private_scope, tasks_for
from ..database.records import CellRow, HistoryRow, TaskRow
from ..folder import ServerFolder
from ..tasks.task_summary import note_summary
from .boards import BOARDS, Board, BoardKind, BoardRow, Boards, Filters

_SHOWN, _READ = 50, 500
_EVERY_SECONDS = 60.0


def note_board(folder: ServerFolder, viewer: Viewer, kind: BoardKind, filters: Filters, board: Board) -> None:
    """Record the ranks on a leaderboard that differ from the last recorded ranks.

    Leaderboards with filters, and leaderboards that contain private results, are ignored.
    """
    if viewer.is_admin or filters._replace(data=0) != Filters() or not board.rows:
        return
    with folder.database.writing() as session:
        if private_scope(session, viewer):
            return
        best: dict[int, BoardRow] = {}  # attacks with several settings have several rows
        defended = _defended_cells(session, board) if kind == "models" else set()
        for row in board.rows:
            if row.component is not None and defended.isdisjoint(row.cells[:1]):
                best.setdefault(row.component, row)
        for row in best.values():
            mine = (HistoryRow.component_id == row.component, HistoryRow.board == kind)
            last = select(HistoryRow).where(*mine, HistoryRow.data_id == board.data).order_by(HistoryRow.id.desc())
            before = session.scalar(last.limit(1))
            now = (row.rank, row.rank_low, row.rank_high, len(board.rows))
            if before is not None and (before.rank, before.rank_low, before.rank_high, before.subjects) == now:
                continue
            ranks = {"rank": row.rank, "rank_low": row.rank_low, "rank_high": row.rank_high, "score": row.score}
            about = {"component_id": row.component, "board": kind, "data_id": board.data, "time": time.time()}
            session.add(HistoryRow(subjects=len(board.rows), tasks=list(board.tasks), **ranks, **about))


def past_ranks(session: Session, viewer: Viewer, component: int) -> list[HistoryRow]:
    """Return past ranks of a component, newest first. Ranks from tasks that the viewer may not see are omitted."""
    mine = select(HistoryRow).where(HistoryRow.component_id == component).order_by(HistoryRow.id.desc())
    rows = session.scalars(mine.limit(_READ)).all()
    behind = {number for row in rows for number in row.tasks}
    seen = set(session.scalars(tasks_for(viewer).where(TaskRow.id.in_(behind)).with_only_columns(TaskRow.id)))
    return [row for row in rows if seen.issuperset(row.tasks)][:_SHOWN]


def _defended_cells(session: Session, board: Board) -> set[int]:
    """Return the numbers of runs on defended models, among the first run of each row of a leaderboard.

    The rank of a row with such a run is that of a defended model, and must not be recorded for the undefended model.
    """
    first = [number for row in board.rows for number in row.cells[:1]]
    chosen = select(CellRow.id).where(CellRow.id.in_(first), CellRow.defence_id.is_not(None))
    return set(session.scalars(chosen))


def make_boards(folder: ServerFolder, boards: Boards, after: int = 0) -> int:
    """Compute the public leaderboards of all data sets with new results. This also records the ranks.

    Args:
        folder: folder of the server.
        boards: leaderboards, which call `note_board`.
        after: number of the newest run at the previous call. 0 for the first call.

    Returns:
        The number of the newest run.
    """
    with folder.database.reading() as session:
        newest = session.scalar(select(func.max(CellRow.id))) or 0
        fresh = cells_for(VISITOR).where(CellRow.id > after).with_only_columns(CellRow.data_id).distinct()
        data = session.scalars(fresh).all()
    for number in data:
        for kind in BOARDS:
            try:
                boards.show(VISITOR, kind, Filters(data=number))
            except SQLAlchemyError:
                raise
            except Exception:  # a failing board must not prevent the others
                traceback.print_exc()
    return newest


def note_summaries(folder: ServerFolder) -> None:
    """Compute the summaries of finished tasks that have none, such as tasks of an earlier version of the server."""
    with folder.database.reading() as session:
        done = select(TaskRow.id).where(TaskRow.state == "done", TaskRow.effects.is_(None))
        numbers = session.scalars(done.where(TaskRow.finished < time.time() - _EVERY_SECONDS)).all()
    for number in numbers:
        note_summary(folder, number)


def keep_noting(folder: ServerFolder, boards: Boards, stopped: threading.Event) -> None:
    """Start a background thread that records ranks and computes missing summaries of tasks every minute."""

    def work() -> None:
        newest = 0
        while not stopped.wait(_EVERY_SECONDS):
            with contextlib.suppress(SQLAlchemyError):  # temporarily unavailable
                newest = make_boards(folder, boards, newest)
                note_summaries(folder)

    threading.Thread(target=work, daemon=True).start()
