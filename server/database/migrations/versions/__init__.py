"""One file for each version of the tables, with the step that leads to it."""
