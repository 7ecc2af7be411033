"""Migrations of the server's tables, run by Alembic."""
