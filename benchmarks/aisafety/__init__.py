"""AISafety: its tables."""
