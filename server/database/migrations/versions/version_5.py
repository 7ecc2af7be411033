"""Migration to version 5, which adds the mean accuracy of a task and the effects of its defences."""

import sqlalchemy as sa
from alembic import op

revision = "5"
down_revision = "4"


def upgrade() -> None:
    """Add columns to the table of tasks. Their value is NULL until the server computes the values."""
    for name in ("score", "score_low", "score_high"):
        op.add_column("tasks", sa.Column(name, sa.Float(), nullable=True))
    op.add_column("tasks", sa.Column("effects", sa.JSON(), nullable=True))
