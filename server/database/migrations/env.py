"""Entry point for Alembic, which runs the migrations in the transaction of the connection that `_migrate` passes."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
