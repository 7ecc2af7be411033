"""Detectors of adversarial images for a model, by name: from libraries, or implemented from the paper."""
