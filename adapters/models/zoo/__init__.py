"""Models by name: built in, from published collections, or from files."""
