"""The first version with migrations. New databases are created from the records directly."""

revision = "3"
down_revision = None


def upgrade() -> None:
    """Do nothing, because the tables exist."""
