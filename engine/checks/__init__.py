"""Failure indicators of a results folder: signs that its robustness may not be real."""
