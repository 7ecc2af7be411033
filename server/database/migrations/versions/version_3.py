"""The first version with migrations; new databases are created from the records directly."""

revision = "3"
down_revision = None


def upgrade() -> None:
    """Do nothing, because the tables exist."""
