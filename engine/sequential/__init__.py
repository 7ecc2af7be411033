"""Evaluations on images in random order that stop when a question is decided."""
