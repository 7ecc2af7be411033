"""Exchange with other programs: imports their results for comparison, and exports to their formats."""
