"""Compares `best`, the search by several attacks, with every single attack at equal numbers of passes."""
