"""Classifiers: their outputs, their identity, and the sources from which they are loaded."""
