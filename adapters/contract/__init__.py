"""What every implementation promises, and the tests that hold it to that."""
