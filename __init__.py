"""davylamp measures the adversarial robustness of image classifiers with the attacks of several libraries.

Every attack parameter has the same name and meaning in all libraries.

    import davylamp

    davylamp.robust_accuracy(model, inputs, labels, epsilon=8 / 255)
    davylamp.compare("pgd", model, inputs, labels, epsilon=8 / 255)

Functions (`robust_accuracy`, `run_attack`, `fit_attack`, `compare`, `saturation`, `evaluate`, `estimate`, `challenge`,
`certify`, `place`, `search_radius`, `search_portfolio`, `corrupt_table`; `harden`, `fit`, `detect`; `load`, `table`,
`curves`, `measure`, `check`, `gate`, `rank`, `standing`, `evidence`, `report`, `export`, `import_results`, `verify`,
`reproduce`, `cite`, `figure`) and classes are loaded when they are first used. The subpackages are `davylamp.adapters`
(attacks and models), `davylamp.metrics` (metrics, which can be used without the rest), `davylamp.engine` (comparisons
and evaluations) and `davylamp.scoring` (rankings).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .deprecation import current_name

__version__ = "1.0.0rc1"

if TYPE_CHECKING:
    from .adapters import (
        Attack,
        AttackResult,
        Classifier,
        Implementation,
        Library,
        ThreatModel,
        as_implementation,
        defend,
        find_attack,
        find_implementation,
    )
    from .adapters.data.maite import from_maite, to_maite
    from .adapters.models.multi_label import from_multi_label
    from .api.baseline_placement import place
    from .api.corrupting import corrupt_table
    from .api.estimating import estimate
    from .api.evaluation import Evaluation, configure, evaluate, table
    from .api.evidence import evidence
    from .api.folders import check, curves, detect, export, import_results, measure
    from .api.gating import gate
    from .api.measuring import certify, challenge, reproduce, robust_accuracy, saturation
    from .api.placing import standing
    from .api.rankings import rank
    from .api.training import fit, harden
    from .api.verbs import compare, corrupt, fit_attack, load_data, load_model, run_attack
    from .api.verifying import verify
    from .engine import AttackChoice, Comparison, Config, ResultsStore, Table, load, search_portfolio, search_radius
    from .errors import DavylampError
    from .memory import keep_freed_memory
    from .report.citations.cite import Bibliography, cite
    from .report.figures.figure import figure
    from .scoring import Ranking

_HOMES = {
    ".api.verbs": ("compare", "corrupt", "fit_attack", "load_data", "load_model", "run_attack"),
    ".api.verifying": ("verify",),
    ".api.measuring": ("certify", "challenge", "reproduce", "robust_accuracy", "saturation"),
    ".api.corrupting": ("corrupt_table",),
    ".api.training": ("fit", "harden"),
    ".api.folders": ("check", "curves", "detect", "export", "import_results", "measure"),
    ".api.estimating": ("estimate",),
    ".api.evidence": ("evidence",),
    ".api.gating": ("gate",),
    ".api.evaluation": ("Evaluation", "configure", "evaluate", "table"),
    ".api.placing": ("standing",),
    ".api.rankings": ("rank",),
    ".api.baseline_placement": ("place",),
    ".adapters": (
        *("Attack", "AttackResult", "Classifier", "Implementation", "Library", "ThreatModel"),
        *("as_implementation", "defend", "find_attack", "find_implementation"),
    ),
    ".adapters.data.maite": ("from_maite", "to_maite"),
    ".adapters.models.multi_label": ("from_multi_label",),
    ".engine": (
        *("AttackChoice", "Comparison", "Config", "ResultsStore", "Table"),
        *("load", "search_portfolio", "search_radius"),
    ),
    ".report.citations.cite": ("Bibliography", "cite"),
    ".report.figures.figure": ("figure",),
    ".scoring": ("Ranking",),
    ".errors": ("DavylampError",),
    ".memory": ("keep_freed_memory",),
}
_PARTS = ("adapters", "engine", "metrics", "report", "scoring")  # `report` is also callable
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_RENAMED = {"best_effort": "search_radius", "best_of": "search_portfolio", "curve": "curves", "train": "fit"}

__all__ = [  # noqa: RUF022 - verbs first
    "certify",
    "challenge",
    "check",
    "cite",
    "compare",
    "configure",
    "corrupt",
    "corrupt_table",
    "curves",
    "detect",
    "estimate",
    "evaluate",
    "evidence",
    "export",
    "figure",
    "fit",
    "fit_attack",
    "gate",
    "harden",
    "import_results",
    "keep_freed_memory",
    "load",
    "load_data",
    "load_model",
    "measure",
    "place",
    "rank",
    "reproduce",
    "robust_accuracy",
    "run_attack",
    "saturation",
    "search_portfolio",
    "search_radius",
    "standing",
    "table",
    "verify",
    "Attack",
    "AttackChoice",
    "AttackResult",
    "Bibliography",
    "Classifier",
    "Comparison",
    "Config",
    "DavylampError",
    "Evaluation",
    "Implementation",
    "Library",
    "Ranking",
    "ResultsStore",
    "Table",
    "ThreatModel",
    "as_implementation",
    "defend",
    "find_attack",
    "find_implementation",
    "from_maite",
    "from_multi_label",
    "to_maite",
]


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return import_module(f".{name}", __name__)
    name = current_name("davylamp", name, _RENAMED)
    if name not in _HOME_OF:
        raise AttributeError(f"module 'davylamp' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PARTS})
