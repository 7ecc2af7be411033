"""Runs AttackBench's runner (attackbenchlib 2.0.2) on a model of davylamp.

    pip install --no-deps attackbenchlib==2.0.2     (`make bench` does this)

AttackBench imports wandb to upload results, and adv-lib imports visdom to plot. Neither is used here, so empty modules
replace them if they are not installed.
"""

import contextlib
import importlib.util
import io
import sys
import time
import types
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from davylamp.errors import MissingLibrary

BUDGET = 2000  # passes an image, AttackBench's rule
BATCH = 64
_EVALUATED = 3  # forward passes an image of its runner itself: clean before and after, and what came back


class TheirRun(NamedTuple):
    """One run of AttackBench's runner.

    Args:
        file: file that it wrote, in its protocol 2.
        results: results that it returned.
        seconds: wall time, including its bookkeeping.
        passes: forward plus backward passes of the model per image, without those of its final evaluation.
        error: error that the attack raised, or "".
    """

    file: Path
    results: Mapping[str, Any]
    seconds: float
    passes: float
    error: str


class _Counted(nn.Module):
    """Model that counts the images that pass through it, forwards and backwards."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model, self.forwards, self.backwards = model, 0, 0

    def forward(self, images: Tensor) -> Tensor:
        self.forwards += len(images)
        logits = self.model(images)
        if logits.requires_grad:
            logits.register_hook(self._count)
        return logits

    def _count(self, gradient: Tensor) -> None:
        self.backwards += len(gradient)


def load_attackbench() -> Any:
    """Import and return the package attackbench.

    Raises:
        MissingLibrary: If it is not installed.
    """
    if importlib.util.find_spec("attackbench") is None:
        command = "pip install --no-deps attackbenchlib==2.0.2"
        raise MissingLibrary("attackbenchlib", "", "only this benchmark needs it", command=command)
    for name, content in (("wandb", {"Api": object}), ("visdom", {})):
        if importlib.util.find_spec(name) is None:
            stand_in = types.ModuleType(name)
            stand_in.__dict__.update(content, __spec__=importlib.util.spec_from_loader(name, None))
            sys.modules.setdefault(name, stand_in)
    import attackbench

    return attackbench


def run_theirs(
    name: str, model: nn.Module, inputs: Tensor, labels: Tensor, norm: str, folder: Path, *, clamped: bool = True
) -> TheirRun:
    """Run one of AttackBench's implementations by its rule.

    Args:
        name: name as in `attackbench.list_attacks`, such as "foolbox:fmn".
        model: model that returns logits for images in [0, 1].
        inputs: images, shape (N, C, H, W).
        labels: labels, shape (N,).
        norm: "linf" or "l2".
        folder: folder for the file that it writes.
        clamped: whether its runner clamps the model's inputs to [0, 1], inside the graph.
    """
    attackbench = load_attackbench()
    from attackbench.metrics.storage import save_precompiled_distances
    from attackbench.models.benchmodel_wrapper import BenchModel

    library, attack = name.split(":")
    counted, caught = _Counted(model), io.StringIO()
    bench = BenchModel(counted, enforce_box=clamped).eval()
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=BATCH)
    names = {"dataset_name": "digits", "model_name": "digits", "attack_name": attack, "attack_lib": library}
    start = time.perf_counter()
    with warnings.catch_warnings(), contextlib.redirect_stderr(caught), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        row = attackbench.get_attack(library, attack, norm)
        results = attackbench.run_attack(
            bench, loader, row, norm, device=torch.device("cpu"), query_budget=BUDGET, **names
        )
    seconds = time.perf_counter() - start
    raised = [line for line in caught.getvalue().splitlines() if "Error" in line and not line.startswith(" ")]
    file, _ = save_precompiled_distances(results, str(folder))
    passes = (counted.forwards + counted.backwards) / len(labels) - _EVALUATED
    return TheirRun(
        Path(file), results, seconds, passes, raised[-1] if any(results["batch_failures"]) and raised else ""
    )
