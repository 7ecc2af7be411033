"""Shared code of the reproductions: settings, small models, published numbers, checks."""
