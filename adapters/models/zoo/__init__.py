"""Models by name: built-in ones, those of published collections, and those in files."""
