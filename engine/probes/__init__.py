"""Probes: short extra runs that failure indicators need."""
