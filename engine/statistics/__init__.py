"""Estimates with intervals, paired tests and the one rule for a verdict."""
