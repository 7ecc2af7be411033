"""Sharing of results folders: merging, bundling into one file, and description for readers of the file."""
