"""Conclusions from a whole folder: verdicts on pairs, rankings, failure indicators, completeness."""
