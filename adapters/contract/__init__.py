"""Contract of every implementation, and the tests of it."""
