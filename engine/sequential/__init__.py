"""Evaluations on images in random order, which stop when a question about robust accuracy is decided."""
