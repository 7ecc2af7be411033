"""Models by name: embedded, of published collections, or from files."""
