"""Conclusions from a results folder: comparisons of implementations, rankings, failure indicators and gates."""
