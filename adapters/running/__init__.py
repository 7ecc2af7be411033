"""Running one attack: the call of a library, its queries and budget, the evidence and the judge."""
