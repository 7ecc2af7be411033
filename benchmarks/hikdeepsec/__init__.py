"""HikDeep-Sec: its tables."""
