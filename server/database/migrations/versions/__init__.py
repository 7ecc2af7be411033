"""Migrations, in one file for each version of the tables."""
