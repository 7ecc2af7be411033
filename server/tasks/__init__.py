"""Tasks: submitted, leased by workers, run by the engine in a process each, taken in, signed."""
