"""Evaluations: compares one attack across libraries, or runs many attacks on many models into a results folder.

Names are imported on first use, so that a command that only reads a folder does not import the attack code.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..deprecation import current_name

if TYPE_CHECKING:
    from ..adapters.catalogue.default_threat_model import choose_threat_model, default_epsilon
    from ..intervals import proportion_interval
    from .checks.verdicts import PairComparison
    from .comparison.compare import Comparison, ImplementationResult, compare
    from .exchange.attackbench_export import export_attackbench
    from .exchange.attackbench_import import import_attackbench
    from .plan.build_plan import make_plan
    from .plan.config import AttackChoice, Config
    from .plan.config_file import read_config, write_config
    from .plan.plan import Plan
    from .run.corruptions import CorruptionPlan, measure_corruptions
    from .run.evaluate import EvaluationSummary, evaluate
    from .searches.portfolio import PortfolioResult, search_portfolio
    from .searches.radius_search import RadiusSearchResult, search_radius
    from .searches.saturation import Saturation, saturating_budget
    from .searches.single import round_to_8bit
    from .statistics.paired_tests import mcnemar, wilcoxon
    from .statistics.verdict import PairVerdict
    from .store.data_frames import load, load_clean, load_transfer
    from .store.store import ResultsStore
    from .tables.budget_curves import Curves, build_curves
    from .tables.corruption_table import build_corruptions
    from .tables.defence_table import build_defence
    from .tables.imported_table import build_references
    from .tables.table import Table, build_table
    from .tables.transfer_table import Transfer, build_transfer


_HOMES = {
    "..adapters.catalogue.default_threat_model": (
        "choose_threat_model",
        "default_epsilon",
    ),
    "..intervals": ("proportion_interval",),
    ".comparison.compare": (
        "Comparison",
        "ImplementationResult",
        "compare",
    ),
    ".checks.verdicts": ("PairComparison",),
    ".exchange.attackbench_export": ("export_attackbench",),
    ".exchange.attackbench_import": ("import_attackbench",),
    ".plan.config": (
        "AttackChoice",
        "Config",
    ),
    ".plan.config_file": (
        "read_config",
        "write_config",
    ),
    ".plan.build_plan": ("make_plan",),
    ".plan.plan": ("Plan",),
    ".run.corruptions": (
        "CorruptionPlan",
        "measure_corruptions",
    ),
    ".run.evaluate": (
        "EvaluationSummary",
        "evaluate",
    ),
    ".searches.portfolio": (
        "PortfolioResult",
        "search_portfolio",
    ),
    ".searches.radius_search": (
        "RadiusSearchResult",
        "search_radius",
    ),
    ".searches.saturation": (
        "Saturation",
        "saturating_budget",
    ),
    ".searches.single": ("round_to_8bit",),
    ".statistics.paired_tests": (
        "mcnemar",
        "wilcoxon",
    ),
    ".statistics.verdict": ("PairVerdict",),
    ".store.data_frames": (
        "load",
        "load_clean",
        "load_transfer",
    ),
    ".store.store": ("ResultsStore",),
    ".tables.budget_curves": (
        "Curves",
        "build_curves",
    ),
    ".tables.corruption_table": ("build_corruptions",),
    ".tables.defence_table": ("build_defence",),
    ".tables.imported_table": ("build_references",),
    ".tables.table": (
        "Table",
        "build_table",
    ),
    ".tables.transfer_table": (
        "Transfer",
        "build_transfer",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_RENAMED = {
    "Judgement": "PairVerdict",
    "Pair": "PairComparison",
    "Row": "ImplementationResult",
    "SearchResult": "RadiusSearchResult",
    "Summary": "EvaluationSummary",
    "best_effort": "search_radius",
    "best_of": "search_portfolio",
    "on_pixels": "round_to_8bit",
    "share_interval": "proportion_interval",
}

__all__ = [
    "AttackChoice",
    "Comparison",
    "Config",
    "CorruptionPlan",
    "Curves",
    "EvaluationSummary",
    "ImplementationResult",
    "PairComparison",
    "PairVerdict",
    "Plan",
    "PortfolioResult",
    "RadiusSearchResult",
    "ResultsStore",
    "Saturation",
    "Table",
    "Transfer",
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
    "proportion_interval",
    "read_config",
    "round_to_8bit",
    "saturating_budget",
    "search_portfolio",
    "search_radius",
    "wilcoxon",
    "write_config",
]


def __getattr__(name: str) -> Any:
    name = current_name("davylamp.engine", name, _RENAMED)
    if name not in _HOME_OF:
        raise AttributeError(f"module 'davylamp.engine' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
