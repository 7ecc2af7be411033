"""Robust training: losses, a resumable loop, weights files and model cards."""
