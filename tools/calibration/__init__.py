"""Simulations with known truth that test whether 95 % intervals and tests have their nominal level."""
