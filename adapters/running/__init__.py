"""Runs one attack: the library call, query counts and budgets, the attack state and the judge."""
