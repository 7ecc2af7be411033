"""Classifiers: loading, output formats, identity, defences and detectors."""
