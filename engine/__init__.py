"""Evaluations: one attack compared through every library, and models x attacks x libraries into a results folder."""

from .compare import Comparison, Pair, Row, compare
from .config import AttackChoice, Config, read_config, write_config
from .curves import Curves, build_curves
from .defaults import choose_threat_model, default_epsilon
from .defence_table import build_defence
from .evaluate import Summary, evaluate
from .load import load, load_clean, load_transfer
from .paired import mcnemar, wilcoxon
from .plan import Plan, make_plan
from .saturation import Saturation, saturating_budget
from .search import SearchResult, best_effort, on_pixels
from .shares import share_interval
from .store import ResultsStore
from .table import Table, build_table
from .transfer_table import Transfer, build_transfer
from .verdicts import Judgement

__all__ = [
    "AttackChoice",
    "Comparison",
    "Config",
    "Curves",
    "Judgement",
    "Pair",
    "Plan",
    "ResultsStore",
    "Row",
    "Saturation",
    "SearchResult",
    "Summary",
    "Table",
    "Transfer",
    "best_effort",
    "build_curves",
    "build_defence",
    "build_table",
    "build_transfer",
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
    "share_interval",
    "wilcoxon",
    "write_config",
]
