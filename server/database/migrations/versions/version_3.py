"""First version with migrations. New databases are created from the table classes directly."""

revision = "3"
down_revision = None


def upgrade() -> None:
    """Do nothing, because the tables exist."""
