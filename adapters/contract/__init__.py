"""Contract of every implementation, and its tests."""
