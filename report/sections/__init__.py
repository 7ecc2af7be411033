"""Sections of a report, one module each."""
