"""Estimates with intervals, paired tests, and verdicts on comparisons."""
