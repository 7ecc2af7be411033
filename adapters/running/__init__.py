"""Runs one attack: the library call, its queries and budget, the attack state and the judge."""
