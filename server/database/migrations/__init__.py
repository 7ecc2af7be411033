"""Migrations of the server's tables, by Alembic."""
