"""The results folder: what is written, sealed, read back and listed."""
