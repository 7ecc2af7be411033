"""Fooling beyond flipping the label: its table and figures."""
