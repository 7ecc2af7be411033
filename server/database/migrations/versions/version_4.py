"""Adds the limit on a user's hours of computing."""

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"


def upgrade() -> None:
    """Add the column, initially empty."""
    op.add_column("users", sa.Column("hours", sa.Float(), nullable=True))
