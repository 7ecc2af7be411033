"""How the rank of components went: noted when the public leaderboard of a data set changes."""

import time

from sqlalchemy import select
from sqlalchemy.orm import Session

from ..database.records import ComponentRow, HistoryRow
from ..database.viewing import Viewer, components_for, private_seen
from ..folder import ServerFolder
from .boards import Board, BoardKind, Filters

_SHOWN = 50


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
                session.add(HistoryRow(subjects=len(board.rows), **ranks, **about))

    def of_component(self, session: Session, viewer: Viewer, component: int) -> list[HistoryRow]:
        """The ranks of a component on data that the viewer may see, the newest first."""
        seen = components_for(viewer).with_only_columns(ComponentRow.id)
        mine = select(HistoryRow).where(HistoryRow.component_id == component, HistoryRow.data_id.in_(seen))
        return [*session.scalars(mine.order_by(HistoryRow.id.desc()).limit(_SHOWN))]
