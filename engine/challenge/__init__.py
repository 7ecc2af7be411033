"""Evaluation of a defence with adaptive attacks."""
