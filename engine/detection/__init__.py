"""Detectors of adversarial images: trained beside a model, and measured on the examples of a results folder."""
