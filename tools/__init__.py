"""Developers' tools of a clone, not in the wheel: speed, calibration, hostile inputs, load, attacks side by side."""
