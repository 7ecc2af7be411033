"""HTTP client of a server, with the standard library only."""
