"""Migration to version 3, the oldest version that can be migrated."""

revision = "3"
down_revision = None


def upgrade() -> None:
    """Change nothing: databases of version 3 already have the tables of this version."""
