"""Exchange with other programs: import of their results as references, export to their formats."""
