"""Classifiers: their outputs, their identity, and where they come from."""
