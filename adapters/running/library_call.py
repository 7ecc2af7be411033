"""Makes one library call on one batch, with counted queries and a fixed seed. All state is restored afterwards."""

import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from io import StringIO
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...errors import ModelFailed
from ..attack import Implementation, NoStart
from ..catalogue.lookup import canonical_attack, load_call_context, load_class, load_driver
from ..models.classifier import Classifier
from ..threat_model import ThreatModel
from ..torch_state import attack_precision, preserve_torch_state
from ..user_code_guard import describe_error, guard_once, was_interrupted
from .queries import QueryBudgetExhausted, QueryCounter, QueryObservations
from .seeding import seeded
from .starting_points import find_starting_points
from .threads import end_threads, started_threads
from .trace import CallTrace


class Images(NamedTuple):
    """Clean images (n, C, H, W) with their labels and their targets, each (n,). The targets may be None."""

    inputs: Tensor
    labels: Tensor
    targets: Tensor | None

    def select(self, rows: Tensor) -> "Images":
        """Return the images with these indices."""
        return Images(self.inputs[rows], self.labels[rows], None if self.targets is None else self.targets[rows])

    def to(self, device: torch.device) -> "Images":
        """Return the images on a device, detached and contiguous, as the libraries need them."""
        inputs, labels = (item.detach().to(device).contiguous() for item in (self.inputs, self.labels))
        return Images(inputs, labels, None if self.targets is None else self.targets.to(device).contiguous())


class LibraryOutput(NamedTuple):
    """Output of one library call for its n images, before it is judged.

    The following fields have one entry per image, shape (n,). `denied`: a query was refused. `moved`: the image was
    queried at a point different from the clean image. `silent`: a query in [0, 1] returned non-finite logits.
    `odd_gradient`: a gradient was not finite although the loss was finite. `odd_query`: an output was not finite, but
    the queried point was outside [0, 1] or the loss was not finite. `scored`: the scores that a score-based attack
    received changed. `gradients`: number of gradients that were finite and not zero.

    Two fields are about this process. `put_back` has the names of settings that the library changed and davylamp
    restored. `torch_seeds` has the seed of torch's generator right before and right after the call.

    `rows` has the indices of the images among all images of `run_attack`, shape (n,), if `run_attack` set them.
    """

    adv_inputs: Tensor
    forwards: Tensor
    backwards: Tensor
    seconds: float
    violations: tuple[tuple[str, ...], ...]
    denied: Tensor
    moved: Tensor
    silent: Tensor
    odd_gradient: Tensor
    odd_query: Tensor
    scored: Tensor
    gradients: Tensor
    put_back: tuple[str, ...]
    torch_seeds: tuple[int, ...]
    error: BaseException | None
    rows: Tensor | None = None


class CallLimits(NamedTuple):
    """Limits and callbacks for one library call.

    `allowance` is the number of queries that each image may still use, shape (n,). None for no limit. `trace` records
    the nearest example of each image, if given. `asked` is called with the number of queries after each model call, for
    a display of progress. `precision` is that of the model's passes. None for torch's current settings.
    """

    allowance: Tensor | None = None
    trace: CallTrace | None = None
    asked: Callable[[int], object] | None = None
    precision: str | None = None


class _Probabilities(nn.Module):
    """Model that returns softmax outputs, for attacks that are defined on probabilities."""

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
    meter: CallLimits,
) -> LibraryOutput:
    """Call the library once for an implementation.

    Args:
        row: the implementation.
        classifier: the model under attack.
        images: the images to attack, on any device.
        threat_model: passed to the library. An implementation that is always targeted gets default targets if the
            threat model is untargeted.
        kwargs: arguments under the library's names.
        seed: seed of every random generator during the call.
        meter: query limits and trace.

    Returns:
        The images as the library returned them, on the device of `images`. An image that ran out of queries is replaced
        by its best example so far. If the library crashed, the images are the clean ones, and `error` has the error.
    """
    device, batch = images.inputs.device, images.to(classifier.device)
    counter = QueryCounter(
        classifier,
        batch.inputs,
        batch.labels,
        threat_model,
        targets=batch.targets,
        order=row.order,
        max_queries=None if meter.allowance is None else meter.allowance.to(batch.inputs.device),
        needs_gradients=canonical_attack(row).knowledge == "white-box",
        scores=_scores_of(row),
        trace=meter.trace,
        asked=meter.asked,
        precision=meter.precision,
    )
    has_start = torch.ones_like(batch.labels, dtype=torch.bool)
    returned, error, started = batch.inputs, None, time.perf_counter()
    process = _Process([], [])
    try:
        with attack_precision(meter.precision), isolated_call(seed, process), load_call_context(row)():
            supplied: dict[str, Any] = {"seed": seed, "num_classes": counter.num_classes}
            if "starting_points" in row.params:
                supplied["starting_points"], has_start = find_starting_points(counter, *batch, seed)
            words = {row.params[name]: value for name, value in supplied.items() if name in row.params}
            returned = _attack_with_starts(row, counter, batch, threat_model, {**words, **kwargs}, has_start)
    except QueryBudgetExhausted:
        returned = counter.best_examples()
    except NoStart:
        has_start = torch.zeros_like(has_start)
    except BaseException as caught:  # whatever ends a library is a failed attack, with reason
        if isinstance(caught, KeyboardInterrupt) and was_interrupted():
            raise
        error = _blame(caught, classifier, counter.seen)
    returned = counter.best_examples(returned)
    if batch.inputs.is_cuda:
        torch.cuda.synchronize(batch.inputs.device)
    kind = () if error is None else ("model-crashed" if isinstance(error, ModelFailed) else "crashed",)
    return LibraryOutput(
        adv_inputs=returned.to(device),
        forwards=counter.forwards.to(device),
        backwards=counter.backwards.to(device),
        seconds=time.perf_counter() - started,
        violations=tuple(kind or (() if ok else ("no-start",)) for ok in has_start.tolist()),
        denied=torch.zeros_like(has_start, device=device)
        if counter.budget is None
        else counter.budget.denied.to(device),
        moved=counter.seen.moved.to(device),
        silent=counter.seen.silent.to(device),
        odd_gradient=counter.seen.odd_gradient.to(device),
        odd_query=counter.seen.odd_query.to(device),
        scored=counter.seen.scored.to(device),
        gradients=counter.seen.gradients.to(device),
        put_back=tuple(process.put_back),
        torch_seeds=tuple(process.torch_seeds),
        error=error,
    )


def _blame(error: BaseException, classifier: Classifier, seen: QueryObservations) -> BaseException:
    """Attribute the error of a library call to the model if the model caused it.

    The model caused the error if a forward pass raised it, or if the model returned NaN before.

    Returns:
        An error of the model, or the library's error unchanged.
    """
    if isinstance(error, ModelFailed):
        return error
    if bool((seen.silent | seen.odd_gradient).any()):
        raised = f"after non-finite logits or gradients, the library {describe_error(error)}"
        failure = ModelFailed(f"the model {classifier.name}: {raised}")
        failure.__cause__ = error
        return failure
    codes = (getattr(type(module).forward, "__code__", None) for module in classifier.model.modules())
    files = {code.co_filename for code in codes if code is not None and "site-packages" not in code.co_filename}
    raised = traceback.extract_tb(error.__traceback__)
    if not raised or raised[-1].filename not in files:
        return error
    failure = ModelFailed(f"while its gradient was computed, the model {classifier.name} {describe_error(error)}")
    failure.__cause__ = error
    return failure


def _scores_of(row: Implementation) -> Callable[[Tensor], Tensor] | None:
    """Return the function that converts logits to the scores that a score-based attack gets. None for other attacks."""
    if canonical_attack(row).knowledge != "score-based":
        return None
    return (lambda logits: logits.softmax(1)) if row.probabilities else (lambda logits: logits)


def _attack_with_starts(
    row: Implementation,
    counter: QueryCounter,
    batch: Images,
    threat_model: ThreatModel,
    kwargs: dict[str, Any],
    has_start: Tensor,
) -> Tensor:
    """Pass the images to the library, with starting points if the attack needs them.

    Images without a starting point are not passed to the library.
    """
    returned, rows = batch.inputs.clone(), has_start.nonzero()[:, 0]
    if not len(rows):
        return returned
    if len(rows) < len(has_start):
        counter.restrict(rows)
        batch, starts = batch.select(rows), row.params["starting_points"]
        kwargs = kwargs | {starts: kwargs[starts][rows]}
    inputs, labels, targets = batch
    if row.targeted == "only" and targets is None:
        targets = _aim(counter, inputs, labels, row.aims_at)
        threat_model = replace(threat_model, targeted=True)
    run = load_driver(row)
    model = _Probabilities(counter) if row.probabilities else counter
    attack_class = load_class(row, threat_model.norm)
    # Copies, so that a library that changes its images affects neither counting nor judging.
    handed = [None if item is None else item.clone() for item in (inputs, labels, targets)]
    attacked = run(attack_class, model, *handed[:2], threat_model, targets=handed[2], **kwargs)
    maker = row.name if row.is_user_attack else "the library"
    if not isinstance(attacked, Tensor) or attacked.shape != inputs.shape:
        raise TypeError(f"expected images of shape {tuple(inputs.shape)} from {maker}, got {_describe(attacked)}")
    if attacked.is_complex() or attacked.layout != torch.strided:
        raise TypeError(f"expected images of real numbers from {maker}, got {attacked.dtype}, {attacked.layout}")
    returned[rows] = attacked.detach().to(inputs)
    return returned


def _aim(counter: QueryCounter, inputs: Tensor, labels: Tensor, aims_at: str) -> Tensor:
    """Choose default targets: the least likely or second most likely class. This costs one query per image."""
    with torch.no_grad():
        logits = counter(inputs)
    if aims_at == "least-likely":
        return logits.argmin(1)
    return logits.scatter(1, labels[:, None], -torch.inf).argmax(1)


class _Process(NamedTuple):
    """Changes of the settings of this process by a library call, see `LibraryOutput`."""

    put_back: list[str]
    torch_seeds: list[int]


@contextmanager
def isolated_call(seed: int, process: _Process | None = None) -> Iterator[None]:
    """Fix the random seed inside the block, and suppress output and warnings. Restore generators and settings on exit.

    If a user's code started threads in the block that still run at its end, these threads are ended. They could change
    later results and keep the process alive. Other threads are not affected.
    """
    process = _Process([], []) if process is None else process
    with (
        started_threads() as threads,
        guard_once(),
        seeded(seed),
        warnings.catch_warnings(),
        redirect_stdout(StringIO()),
    ):
        warnings.simplefilter("ignore")
        with preserve_torch_state(put_back=process.put_back):
            process.torch_seeds.append(torch.initial_seed())
            try:
                yield
            finally:
                process.torch_seeds.append(torch.initial_seed())
                end_threads(threads())


def _describe(value: Any) -> str:
    return str(tuple(value.shape)) if hasattr(value, "shape") else type(value).__name__
