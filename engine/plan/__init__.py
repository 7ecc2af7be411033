"""Turns a configuration into a plan, the list of runs."""
