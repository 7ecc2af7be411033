"""Steps from each version of the server's tables to the next, by Alembic."""
