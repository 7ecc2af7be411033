"""Random and damaged inputs at every door."""
