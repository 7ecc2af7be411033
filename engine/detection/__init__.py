"""Detectors of adversarial images: training, and measurement on the examples of a results folder."""
