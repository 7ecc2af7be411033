"""Classifiers: their outputs, their identity, and the sources that they are loaded from."""
