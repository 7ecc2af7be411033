"""The catalogue of all canonical attacks, and of the libraries' implementations with their known issues."""
