"""Comparison of one attack across libraries on the same images."""
