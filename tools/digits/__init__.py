"""Trains the weights that the package contains: two small networks for scikit-learn's digits."""
