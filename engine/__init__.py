"""Evaluations: one attack compared through every library, and models x attacks x libraries into a results folder."""

from .compare import Comparison, Pair, Row, compare
from .config import AttackChoice, Config, read_config, write_config
from .defaults import choose_threat_model, default_epsilon
from .evaluate import Summary, evaluate
from .load import load, load_clean, load_transfer
from .paired import mcnemar, wilcoxon, wilson_interval
from .plan import Plan, make_plan
from .saturation import Saturation, saturating_budget
from .search import SearchResult, best_effort, on_pixels
from .store import ResultsStore

__all__ = [
    "AttackChoice",
    "Comparison",
    "Config",
    "Pair",
    "Plan",
    "ResultsStore",
    "Row",
    "Saturation",
    "SearchResult",
    "Summary",
    "best_effort",
    "choose_threat_model",
    "compare",
    "default_epsilon",
    "evaluate",
    "load",
    "load_clean",
    "load_transfer",
    "make_plan",
    "mcnemar",
    "on_pixels",
    "read_config",
    "saturating_budget",
    "wilcoxon",
    "wilson_interval",
    "write_config",
]
