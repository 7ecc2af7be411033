"""HTTP client of a server, which needs the standard library only."""
