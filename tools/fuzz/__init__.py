"""Fuzz tests: random and damaged inputs for every command."""
