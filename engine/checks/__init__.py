"""Failure indicators: what speaks against the numbers of a results folder."""
