"""Robust training: losses, a loop that can resume, weights files and model cards."""
