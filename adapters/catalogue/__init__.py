"""The catalogue: canonical attacks, their parameters, and every library's implementations and known issues."""
