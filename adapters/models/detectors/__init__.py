"""Detectors of adversarial images beside a model, by name: from the libraries that have them, or from the paper."""
