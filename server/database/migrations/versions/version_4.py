"""Migration to version 4, which adds the limit on a user's hours of computing."""

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"


def upgrade() -> None:
    """Add the column `hours` to the table of users. Its value is NULL, which means no limit."""
    op.add_column("users", sa.Column("hours", sa.Float(), nullable=True))
