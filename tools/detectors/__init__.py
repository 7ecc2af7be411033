"""Measures how often detectors notice attacks that know them and attacks that do not."""
