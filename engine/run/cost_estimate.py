"""Estimates the cost of a plan before it runs: numbers of passes, time, memory and price."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ...adapters import Classifier
from ...adapters.models.remote.address import is_address
from ...adapters.models.sandbox.isolated import is_isolated
from ...adapters.running.requirements import has_gradients
from ..attack_run import AttackRun, ModelOnData
from ..plan.plan import Plan
from ..query_estimates import estimate_queries
from ..store.store import ResultsStore

_REPEATS = 3  # timed passes, of which the fastest counts


class ModelCost(NamedTuple):
    """Expected cost of the unfinished runs on one model.

    Attributes:
        model: name of the model.
        images: number of images.
        runs: number of unfinished runs.
        finished: number of runs that are reused.
        passes: forward and backward passes of all images, if no image is fooled early.
        seconds: time of these passes in sequence. NaN if no pass was timed.
        memory: peak memory during a pass with gradients, in bytes, of the GPU or of this process. NaN if not measured.
        price: price of the forward passes that are sent to a server, if the answer cache is empty. 0 for a local model.
        note: why a number is missing, or what a number does not include. "" without a note.
    """

    model: str
    images: int
    runs: int
    finished: int
    passes: float
    seconds: float
    memory: float
    price: float
    note: str = ""


class _PassTime(NamedTuple):
    """Seconds per image of a forward and of a backward pass, and peak memory in bytes."""

    forward: float
    backward: float
    memory: float


def estimate_plan(plan: Plan, store: ResultsStore) -> list[ModelCost]:
    """Estimate the cost of the unfinished runs of a plan.

    One pass of each local model is timed. A model on a server is not queried. Its time follows from the request rate.
    The number of passes of an attack follows from its steps. For an attack without steps, it is a typical number (see
    `query_estimates`).

    The estimate does not include the library's own computation, the metrics and the judge. With several workers, the
    time is divided among them.

    Args:
        plan: the plan.
        store: its results folder. Finished runs in this folder cost nothing.
    """
    finished = set(store.keys("cells"))
    return [_cost_of(plan, subject, finished) for subject, _ in plan.subjects_here]


def _cost_of(plan: Plan, subject: ModelOnData, finished: set[str]) -> ModelCost:
    mine = [cell for cell in plan.runs_in_this_part if cell.subject == subject]
    waiting = [cell for cell in mine if cell.key not in finished]
    passes = [(cell, _images(plan, cell) * estimate_queries(cell)) for cell in waiting]
    shown = sum(tested == subject and cell.key not in finished for tested, cell in plan.transfers_here)
    single = float(subject.images * (bool(waiting) + shown))  # clean predictions, and examples of other models
    total = single + sum(count for _, count in passes)
    counts = subject.model, subject.images, len(waiting), len(mine) - len(waiting), total
    if is_address(subject.model):
        return ModelCost(*counts, *_remote_cost(plan, total))
    made_on_others = [cell for cell in waiting if cell.surrogate]
    note = "passes of its surrogates are assumed to take as long as its own" if made_on_others else ""
    if not waiting:
        return ModelCost(*counts, 0.0, math.nan, 0.0)
    source = plan.source(subject)
    classifier = plan.loaded.model(source, plan.config.device)
    inputs = plan.loaded.data(plan.data, classifier).inputs
    timed = _time_pass(classifier, inputs[: plan.config.batch_size or plan.config.shard_size])
    seconds = single * timed.forward
    for cell, count in passes:
        seconds += sum(count * share for share in _shares(cell, timed))
    if is_isolated(classifier):
        note = note or "in a separate process, whose memory is not included"
    return ModelCost(*counts, seconds, timed.memory, 0.0, note)


def _images(plan: Plan, cell: AttackRun) -> int:
    return sum(len(cell.shard_slice(shard)) for shard in plan.shards(cell))


def _shares(cell: AttackRun, timed: _PassTime) -> Iterator[float]:
    """Yield the mean time of a pass for each attack of a run, weighted by the attack's proportion of all passes."""
    total = estimate_queries(cell)
    for member in cell.members:
        each = timed.forward if not _uses_gradients(member) else (timed.forward + timed.backward) / 2
        yield each * (estimate_queries(member) / total if len(cell.members) > 1 else 1.0)


def _uses_gradients(cell: AttackRun) -> bool:
    return cell.knowledge in ("white-box", "transfer")


def _remote_cost(plan: Plan, passes: float) -> tuple[float, float, float, str]:
    """Return the cost of a model on a server: seconds, memory (unknown), price and a note."""
    transport = plan.config.transport()
    seconds = math.nan
    if transport.rate:
        images = transport.rate * (transport.request_size if transport.unit == "requests" else 1)
        seconds = passes / images
    note = (
        "at its rate limit"
        if transport.rate
        else "the time is unknown, because servers are not queried for an estimate"
    )
    note += "" if transport.cost else "; no price is given (--price-per-image)"
    return seconds, math.nan, passes * transport.cost, note


def _time_pass(classifier: Classifier, inputs: Tensor) -> _PassTime:
    """Measure the time of a forward pass, and of a pass with gradients, after a warm-up."""
    device = torch.device(classifier.device)
    images = inputs.to(device)
    is_gpu = device.type == "cuda"
    if is_gpu:
        torch.cuda.reset_peak_memory_stats(device)

    def forward() -> None:
        classifier.predict_batched(images, len(images))

    def backward() -> None:
        with classifier.frozen():
            classifier.eval()
            classifier(images.detach().requires_grad_()).sum().backward()

    forward()
    plain = _fastest(forward, device)
    if not has_gradients(classifier, images[:1]):
        whole = plain
    else:
        backward()
        whole = _fastest(backward, device)
    memory = torch.cuda.max_memory_allocated(device) if is_gpu else _process_peak()
    return _PassTime(plain / len(images), max(whole - plain, 0.0) / len(images), memory)


def _fastest(call: Callable[[], None], device: torch.device) -> float:
    times = []
    for _ in range(_REPEATS):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return min(times)


def _process_peak() -> float:
    """Return the peak memory of this process in bytes; NaN if the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return math.nan
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else peak * 1024)
