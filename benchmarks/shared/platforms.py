"""Tables that compare platforms (CANARY's Table 3, AISafety's Table X), with a computed row for davylamp."""

import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from rich.console import Console

from ...adapters import IMPLEMENTATIONS
from ...adapters.data.bundled_images import SAMPLES
from ...adapters.data.corruptions.published import CORRUPTIONS
from ...adapters.data.corruptions.sequences import SEQUENCES
from ...adapters.models.defences.catalogue import DEFENCES
from ...adapters.models.zoo.load import list_models
from ...engine.training.methods import METHODS
from ...metrics import METRICS
from .paper_grid import build_grid, print_grid
from .paper_numbers import load_published
from .paper_table import Options

_OURS = "davylamp"
_COUNTED = "counted now from davylamp's own lists, as `davylamp attacks`, `defences` and `metrics` show them"


def _count_defences() -> int:
    inputs = {name.partition(":")[2] for name in DEFENCES}
    return len(inputs | {name for name in METHODS if not name.startswith("natural")})


_COUNTS: Mapping[str, Callable[[], int]] = {
    "attacks": lambda: len({row.attack for row in IMPLEMENTATIONS.values()}),
    "defences": _count_defences,
    "metrics": lambda: len(METRICS),
    "models": lambda: len(list_models("demo:*")),
    "data_sets": lambda: len({name.partition(":")[2] for name in SAMPLES}),
}
_MARKS: Mapping[str, Callable[[], int]] = {
    "attacks": lambda: int(bool(IMPLEMENTATIONS)),
    "robustness": lambda: int(bool(METRICS)),
    "static_dynamic": lambda: int(bool(CORRUPTIONS) and bool(SEQUENCES)),
    "competition": lambda: int(find_spec("davylamp.server") is not None),
    "scenarios": lambda: 0,
}
_READINGS: Mapping[str, Mapping[str, str]] = {
    "canary_table3": {
        "attacks": "canonical attacks of all libraries; every one is for images",
        "defences": "transformations of the input, changes of the model, and methods of training, each once",
        "models": "embedded ones; models of torchvision, timm and RobustBench are loaded by name",
        "data_sets": "embedded samples",
        "frameworks": "not counted: PyTorch, ONNX and models behind HTTP run; the paper does not say what counts",
    },
    "aisafety_table10": {
        "static_dynamic": "corruptions and sequences of frames (section IV.A)",
        "competition": "leaderboards of the server",
        "scenarios": "image classification alone",
    },
}


def compare_platforms(published: str, options: Options) -> dict[str, Any]:  # noqa: ARG001 - no options apply
    """Count what davylamp contains, for a row in a paper's table of platforms.

    Args:
        published: "canary_table3" or "aisafety_table10".
        options: ignored, because no model is run.
    """
    start, document = time.monotonic(), load_published(published)
    counts = _COUNTS if published == "canary_table3" else _MARKS
    about = {"labels": {"tool": _OURS}, "model": None, "published": None, "difference": None}
    lines = [{"row": _OURS, "column": name, "symbol": name, "ours": count(), **about} for name, count in counts.items()]
    head = {"table": published, "source": document["source"], "unit": document["unit"], "lines": lines}
    notes = [_COUNTED, *document["notes"]]
    return {**head, "readings": _READINGS[published], "notes": notes, "seconds": time.monotonic() - start}


def print_platforms(result: Mapping[str, Any], console: Console) -> None:
    """Print a paper's table of platforms with a row for davylamp.

    Args:
        result: result of `compare_platforms`.
        console: output console.
    """
    print_grid(result, build_grid(result["table"], result["lines"]), "both", console)
    for text in (*(f"{name}: {reading}" for name, reading in result["readings"].items()), *result["notes"]):
        console.print(f"- {text}", highlight=False, markup=False)
