"""Adds the overall scores of tasks, and the effects of their defences."""

import sqlalchemy as sa
from alembic import op

revision = "5"
down_revision = "4"


def upgrade() -> None:
    """Add the columns, which the server fills later."""
    for name in ("score", "score_low", "score_high"):
        op.add_column("tasks", sa.Column(name, sa.Float(), nullable=True))
    op.add_column("tasks", sa.Column("effects", sa.JSON(), nullable=True))
