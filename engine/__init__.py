"""Evaluations: one attack compared through every library, and models x attacks x libraries into a results folder."""

from ..adapters.catalogue.customary import choose_threat_model, default_epsilon
from ..intervals import share_interval
from .attack.best_effort import SearchResult, best_effort, on_pixels
from .attack.best_of import PortfolioResult, best_of
from .attack.saturation import Saturation, saturating_budget
from .comparison.compare import Comparison, Pair, Row, compare
from .exchange.attackbench_export import export_attackbench
from .exchange.attackbench_import import import_attackbench
from .plan.config import AttackChoice, Config, read_config, write_config
from .plan.make import Plan, make_plan
from .run.corruptions import CorruptionPlan, measure_corruptions
from .run.evaluate import EvaluationSummary, evaluate
from .statistics.paired_tests import mcnemar, wilcoxon
from .statistics.verdict import Judgement
from .store.frames import load, load_clean, load_transfer
from .store.store import ResultsStore
from .tables.budget_curves import Curves, build_curves
from .tables.corruption_table import build_corruptions
from .tables.defence_table import build_defence
from .tables.reference_table import build_references
from .tables.table import Table, build_table
from .tables.transfer_table import Transfer, build_transfer

Summary = EvaluationSummary  # its name in 0.1.0

__all__ = [
    "AttackChoice",
    "Comparison",
    "Config",
    "CorruptionPlan",
    "Curves",
    "EvaluationSummary",
    "Judgement",
    "Pair",
    "Plan",
    "PortfolioResult",
    "ResultsStore",
    "Row",
    "Saturation",
    "SearchResult",
    "Summary",
    "Table",
    "Transfer",
    "best_effort",
    "best_of",
    "build_corruptions",
    "build_curves",
    "build_defence",
    "build_references",
    "build_table",
    "build_transfer",
    "choose_threat_model",
    "compare",
    "default_epsilon",
    "evaluate",
    "export_attackbench",
    "import_attackbench",
    "load",
    "load_clean",
    "load_transfer",
    "make_plan",
    "mcnemar",
    "measure_corruptions",
    "on_pixels",
    "read_config",
    "saturating_budget",
    "share_interval",
    "wilcoxon",
    "write_config",
]
