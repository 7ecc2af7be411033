"""Measures the time and memory of davylamp, compared with direct calls."""
