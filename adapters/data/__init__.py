"""Loads images and labels, by name, from folders, and from array files."""
