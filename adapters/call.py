"""One library call on one batch: the model wrapped and counted, the seed set, all state restored afterwards."""

import importlib
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import replace
from io import StringIO
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .attack import Implementation, ThreatModel
from .catalogue import load_class, load_object
from .classifier import Classifier
from .queries import BudgetSpent, QueryCounter
from .seeding import seeded
from .starts import find_starting_points


class Images(NamedTuple):
    """Clean images (n, C, H, W) with labels and targets (n,) or None."""

    inputs: Tensor
    labels: Tensor
    targets: Tensor | None

    def pick(self, rows: Tensor) -> "Images":
        """The images at `rows`."""
        return Images(self.inputs[rows], self.labels[rows], None if self.targets is None else self.targets[rows])


class Returned(NamedTuple):
    """What one library call gave back for its n images, not judged yet."""

    adv_inputs: Tensor
    forwards: Tensor
    backwards: Tensor
    seconds: float
    violations: tuple[tuple[str, ...], ...]
    error: Exception | None


class _Probabilities(nn.Module):
    """Softmax outputs, for the attacks whose formulas need them."""

    def __init__(self, counter: QueryCounter):
        super().__init__()
        self.counter, self.num_classes, self.training = counter, counter.num_classes, False

    def forward(self, inputs: Tensor) -> Tensor:
        return self.counter(inputs).softmax(1)


def call_library(
    row: Implementation,
    classifier: Classifier,
    images: Images,
    threat_model: ThreatModel,
    kwargs: Mapping[str, Any],
    seed: int,
    allowance: Tensor | None,
) -> Returned:
    """Run the row's library class once.

    Args:
        row: the implementation.
        classifier: the model under attack.
        images: what is attacked, on any device.
        threat_model: passed to the library; a targeted-only row gets targets of its own under an untargeted one.
        kwargs: arguments in the library's words.
        seed: of every random generator during the call.
        allowance: queries that each image may still cost, shape (n,), or None.

    Returns:
        The images as the library returned them (an image that ran out of queries: its best example so far), on the
        device of `images`. A crash of the library is returned as `error`, with the clean images.
    """
    device = images.inputs.device
    inputs, labels, targets = (
        None if item is None else item.detach().to(classifier.device).contiguous() for item in images
    )
    if inputs is None or labels is None:
        raise TypeError("expected images with labels, got None")
    if allowance is not None:
        allowance = allowance.to(inputs.device)
    counter = QueryCounter(
        classifier, inputs, labels, threat_model, targets=targets, order=row.order, max_queries=allowance
    )
    error, found = None, torch.ones(len(inputs), dtype=torch.bool, device=inputs.device)
    returned, started = inputs, time.perf_counter()
    try:
        with _undisturbed(seed), (load_object(row.within, row.library) if row.within else nullcontext)():
            supplied: dict[str, Any] = {"seed": seed, "num_classes": counter.num_classes}
            if "starting_points" in row.params:
                supplied["starting_points"], found = find_starting_points(counter, inputs, labels, targets, seed)
            words = {row.params[name]: value for name, value in supplied.items() if name in row.params}
            started = time.perf_counter()
            returned = _attack_found(row, counter, (inputs, labels, targets), threat_model, {**words, **kwargs}, found)
    except BudgetSpent:
        pass
    except Exception as caught:
        error = caught
    if counter.budget is not None:
        returned = counter.budget.best.where(counter.budget.denied.view(-1, 1, 1, 1), returned)
    if inputs.is_cuda:
        torch.cuda.synchronize(inputs.device)
    seconds = time.perf_counter() - started
    kinds = ["crashed" if error else ("" if ok else "no-start") for ok in found.tolist()]
    violations = tuple((kind,) if kind else () for kind in kinds)
    forwards, backwards = counter.forwards.to(device), counter.backwards.to(device)
    return Returned(returned.to(device), forwards, backwards, seconds, violations, error)


def _attack_found(
    row: Implementation,
    counter: QueryCounter,
    batch: tuple[Tensor, Tensor, Tensor | None],
    threat_model: ThreatModel,
    kwargs: dict[str, Any],
    found: Tensor,
) -> Tensor:
    inputs, labels, targets = batch
    if not found.any():
        return inputs
    if row.targeted == "only" and targets is None:
        targets = _aim(counter, inputs, labels, row.aims_at)
        threat_model = replace(threat_model, targeted=True)
    library = importlib.import_module(f".{row.library}", __package__)
    model = _Probabilities(counter) if row.probabilities else counter
    attack_class = load_class(row, threat_model.norm)
    returned = library.run(attack_class, model, inputs, labels, threat_model, targets=targets, **kwargs)
    if not isinstance(returned, Tensor) or returned.shape != inputs.shape:
        raise TypeError(f"expected images of shape {tuple(inputs.shape)} from the library, got {_describe(returned)}")
    returned = returned.detach().to(inputs)
    return returned.where(found.view(-1, 1, 1, 1), inputs)


def _aim(counter: QueryCounter, inputs: Tensor, labels: Tensor, aims_at: str) -> Tensor:
    """Targets of an attack that needs one and was given none: least likely or second most likely class; one query."""
    with torch.no_grad():
        logits = counter.query(inputs, None)
    if aims_at == "least-likely":
        return logits.argmin(1)
    return logits.scatter(1, labels[:, None], -torch.inf).argmax(1)


@contextmanager
def _undisturbed(seed: int) -> Iterator[None]:
    """A fixed seed, no prints and no warnings of the library, and every generator as it was afterwards."""
    with seeded(seed), warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        yield


def _describe(value: Any) -> str:
    return str(tuple(value.shape)) if hasattr(value, "shape") else type(value).__name__
