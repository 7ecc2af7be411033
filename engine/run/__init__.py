"""Runs a plan: tasks, workers, metrics for each image, and the index of finished runs."""
