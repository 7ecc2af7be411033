"""Models that are loaded by name: built-in models, models of published collections, and models in files."""
