"""Developers' tools of a clone, not in the wheel: speed, calibration, hostile inputs, load, AttackBench."""
