"""Results folders handed on: put together, packed into one file, described for other programs."""
