"""The weights that the package ships: two small networks for scikit-learn's digits."""
