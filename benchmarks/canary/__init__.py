"""CANARY: its tables."""
