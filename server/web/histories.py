"""How the rank of components went: noted when the public leaderboard of a data set changes."""

import time

from sqlalchemy import select
from sqlalchemy.orm import Session

from ..database.records import HistoryRow, TaskRow
from ..database.viewing import Viewer, private_seen, tasks_for
from ..folder import ServerFolder
from .boards import Board, BoardKind, Filters

_SHOWN, _READ = 50, 500


class Histories:
    """Notes and shows ranks; only of what every visitor sees, so that nothing private is in them."""

    def __init__(self, folder: ServerFolder):
        self.folder = folder

    def note_board(self, viewer: Viewer, kind: BoardKind, filters: Filters, board: Board) -> None:
        """Note the ranks of a public leaderboard without filters where they have changed."""
        if viewer.is_admin or filters._replace(data=0) != Filters() or not board.rows:
            return
        with self.folder.database.writing() as session:
            if private_seen(session, viewer):
                return
            for row in board.rows:
                if row.component is None:
                    continue
                mine = (HistoryRow.component_id == row.component, HistoryRow.board == kind)
                last = select(HistoryRow).where(*mine, HistoryRow.data_id == board.data).order_by(HistoryRow.id.desc())
                before = session.scalar(last.limit(1))
                now = (row.rank, row.rank_low, row.rank_high, len(board.rows))
                if before is not None and (before.rank, before.rank_low, before.rank_high, before.subjects) == now:
                    continue
                ranks = {"rank": row.rank, "rank_low": row.rank_low, "rank_high": row.rank_high, "score": row.score}
                about = {"component_id": row.component, "board": kind, "data_id": board.data, "time": time.time()}
                session.add(HistoryRow(subjects=len(board.rows), tasks=list(board.tasks), **ranks, **about))

    def of_component(self, session: Session, viewer: Viewer, component: int) -> list[HistoryRow]:
        """The ranks of a component, the newest first, on leaderboards of nothing that the viewer may not see."""
        mine = select(HistoryRow).where(HistoryRow.component_id == component).order_by(HistoryRow.id.desc())
        rows = session.scalars(mine.limit(_READ)).all()
        behind = {number for row in rows for number in row.tasks}
        seen = set(session.scalars(tasks_for(viewer).where(TaskRow.id.in_(behind)).with_only_columns(TaskRow.id)))
        return [row for row in rows if seen.issuperset(row.tasks)][:_SHOWN]
