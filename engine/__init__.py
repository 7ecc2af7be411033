"""Evaluations: the same attack compared through every library that has it."""

from .compare import Comparison, Pair, Row, compare
from .defaults import choose_threat_model, default_epsilon
from .paired import mcnemar, wilcoxon, wilson_interval

__all__ = [
    "Comparison",
    "Pair",
    "Row",
    "choose_threat_model",
    "compare",
    "default_epsilon",
    "mcnemar",
    "wilcoxon",
    "wilson_interval",
]
