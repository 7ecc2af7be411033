"""The first version from which there are steps; a new database is made as the records are, without any."""

revision = "3"
down_revision = None


def upgrade() -> None:
    """Nothing: the tables are there."""
