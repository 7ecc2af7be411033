"""Runs the main commands over attacks, norms, settings and models of every shape."""
