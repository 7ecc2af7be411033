"""Calls attack authors' programs from a checkout that the user has. davylamp contains no part of them.

Each function takes the folder of the checkout, a model in evaluation mode on the CPU, and images. It returns the images
that the program returns. If a program does not run with current packages, it is patched for the duration of the call.
"""

import collections
import collections.abc
import importlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

Program = Callable[..., Tensor]


@contextmanager
def checkout(folder: Path, **stand_ins: ModuleType) -> Iterator[None]:
    """Make a folder's modules importable, silent and on the CPU. Everything is undone on exit.

    Args:
        folder: folder of the checkout.
        **stand_ins: replacements for modules that the program imports but does not need.

    Raises:
        FileNotFoundError: If there is no such folder.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"expected a folder with a checkout, got {folder}")
    absent = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    sys.modules.update(absent)
    try:
        with (
            patch.object(sys, "path", [str(folder), *sys.path]),
            patch.object(torch.Tensor, "cuda", lambda self, *_: self),
            redirect_stdout(StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        files = {name: str(getattr(module, "__file__", "")) for name, module in sys.modules.items()}
        for name, file in files.items():
            if name in absent or file.startswith(str(folder)):
                del sys.modules[name]


def run_rays(folder: Path, model: nn.Module, inputs: Tensor, labels: Tensor, *, max_queries: int) -> Tensor:
    """Run RayS (github.com/uclaml/RayS) on the whole batch."""
    bar: Any = ModuleType("pgbar")  # theirs asks the terminal for its size
    bar.progress_bar = lambda *_: None
    with checkout(folder, pgbar=bar):
        program = importlib.import_module("RayS").RayS(_Labels(model))
        return program.attack_hard_label(inputs.clone(), labels, query_limit=max_queries)[0].detach()


class _Labels:
    """Model with the interface that RayS expects."""

    def __init__(self, model: nn.Module):
        self.model = model

    @torch.no_grad()
    def predict_label(self, images: Tensor) -> Tensor:
        return self.model(images).argmax(1)


def run_nattack(
    folder: Path, model: nn.Module, inputs: Tensor, labels: Tensor, *, epsilon: float, steps: int, samples: int
) -> Tensor:
    """Run NA (github.com/DIG-Beihang/AISafety) image by image. It is written for 32 x 32 pixels and ten classes."""
    with checkout(folder, cv2=ModuleType("cv2")):
        kind = importlib.import_module("EvalBox.Attack.AdvAttack.na").NA
        np.random.seed(0)  # noqa: NPY002 - the program draws from it
        program = kind(_OneOrMore(model), torch.device("cpu"), False, eps=epsilon, n_iter=steps, n_samples=samples)
        rows = range(len(inputs))
        return torch.cat([program.generate(inputs[i : i + 1].clone(), labels[i : i + 1]) for i in rows])


class _OneOrMore(nn.Module):
    """Model that also accepts a single image without a batch dimension."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images if images.ndim == 4 else images[None])


def run_qeba(
    folder: Path, model: nn.Module, inputs: Tensor, labels: Tensor, *, starting_points: Tensor, max_queries: int
) -> Tensor:
    """Run QEBA-S (github.com/AI-secure/QEBA) image by image, and return the nearest examples within `max_queries`."""
    older = patch.object(collections, "Iterable", collections.abc.Iterable, create=True)
    with _without("foolbox"), checkout(folder / "foolbox-based"), older:
        theirs: Any = importlib.import_module("foolbox")
        attack = importlib.import_module("foolbox.attacks.bapp_custom").BAPP_custom
        small = importlib.import_module("resize_generator").ResizeGenerator(factor=2.0)
        classes = model(inputs[:1]).shape[1]
        returned = []
        for image, label, start in zip(inputs, labels, starting_points, strict=True):
            np.random.seed(0)  # noqa: NPY002 - the program draws from it
            wrapped = theirs.models.PyTorchModel(model, bounds=(0, 1), num_classes=classes, device="cpu")
            wrapped.gradient_one = lambda point, **_: np.ones_like(point)  # it logs an angle to the gradient
            criterion = theirs.criteria.Misclassification()
            criterion.target_class = lambda: 0
            asked = theirs.adversarial.Adversarial(wrapped, criterion, image.numpy(), int(label))
            kept = _Kept(asked, max_queries)
            with patch.object(attack, "log_step", kept.note), patch.object(attack, "log_time", lambda *_: None):
                try:
                    words = {"stepsize_search": "geometric_progression", "internal_dtype": np.float32}
                    attack(wrapped, criterion)(
                        asked, starting_point=start.numpy(), rv_generator=small, unpack=False, plot_adv=False, **words
                    )
                except _OutOfQueries:
                    pass
            returned.append(torch.from_numpy(kept.best))
    return torch.stack(returned)


@contextmanager
def _without(package: str) -> Iterator[None]:
    """Hide the modules of an installed package, so that another package of the same name can be imported."""
    aside = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == package}
    for name in aside:
        del sys.modules[name]
    try:
        yield
    finally:
        sys.modules.update(aside)


class _OutOfQueries(Exception):
    """Stops a program that has no query budget."""


class _Kept:
    """Stores the best example of the last step that ended within the budget."""

    def __init__(self, asked: Any, most: int):
        self.asked, self.most, self.best = asked, most, asked.unperturbed

    def note(self, *_: Any, **__: Any) -> None:
        if self.asked._total_prediction_calls > self.most:
            raise _OutOfQueries
        self.best = self.asked.perturbed.copy()


PROGRAMS: Mapping[str, Program] = {"rays": run_rays, "nattack": run_nattack, "qeba": run_qeba}
