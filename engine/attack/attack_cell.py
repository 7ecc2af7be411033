"""A cell's attack on some of its images."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...adapters import AttackResult, Classifier, Implementation, attack_of, find_implementation, run_attack
from ...adapters.running.access import look
from ...adapters.running.draws import clean_logits, drawing
from ...adapters.running.fit import Fitted
from ...adapters.running.precision import precision_of
from ...adapters.running.surrogate import run_transfer
from ...adapters.running.targets import targets_for
from ...adapters.running.trace import Trace, curves_of
from ...adapters.switches import is_autocast
from ...adapters.user_file import is_file_name
from ...errors import InvalidInput
from ..cell import CURVE, Cell
from .at_saturation import at_saturation
from .best_effort import best_effort, on_pixels
from .best_of import best_of
from .in_turn import attack_in_turn


def attack_shard(  # noqa: PLR0913 - as run_attack
    cell: Cell,
    classifier: Classifier,
    inputs: Tensor,
    labels: Tensor,
    *,
    first: int = 0,
    logits: Tensor | None = None,
    surrogate: Classifier | None = None,
    fitted: Fitted | None = None,
    progress: Callable[[int], object] | None = None,
) -> AttackResult:
    """Run a cell's attack on some of its images.

    Args:
        cell: what to run.
        classifier: the cell's model.
        inputs: clean images, shape (N, C, H, W).
        labels: shape (N,).
        first: place of the first of them in the data; with it every shard draws different random numbers.
        logits: of these images, if they are known.
        surrogate: what the examples are made on, for a cell that has one; targets are chosen by what it predicts.
        fitted: what the attack has learned before, for a cell with `fitted_on`.
        progress: called with the number of images just attacked.

    Raises:
        DavylampError: whatever the attack raises.
    """
    with drawing(classifier, draws=cell.draws or None, eot=cell.eot), drawing(surrogate or classifier, eot=cell.eot):
        return _attack(cell, classifier, inputs, labels, first, logits, surrogate, fitted, progress)


def _attack(  # noqa: PLR0913, PLR0917 - as attack_shard
    cell: Cell,
    classifier: Classifier,
    inputs: Tensor,
    labels: Tensor,
    first: int,
    logits: Tensor | None,
    surrogate: Classifier | None,
    fitted: Fitted | None,
    progress: Callable[[int], object] | None,
) -> AttackResult:
    targets = None
    if cell.threat_model.targeted:
        logits = clean_logits(classifier, inputs, labels, logits)
        look(surrogate or classifier, inputs)
        seen = logits if surrogate is None else surrogate.predict_logits(inputs)
        targets = targets_for(surrogate or classifier, seen, labels, cell.target, cell.seed + first)
    if not cell.is_worst_case:
        shared = {"targets": targets, "seed": cell.seed, "first": first, "logits": logits, "progress": progress}
        return _run(cell, classifier, inputs, labels, surrogate, fitted, shared)
    places = torch.arange(len(labels), device="cpu") + first

    def run(member: Cell, rows: Tensor, logits: Tensor | None, progress: Callable[[int], object]) -> AttackResult:
        aims = None if targets is None else targets[rows]
        shared = {"targets": aims, "seed": cell.seed, "first": places[rows.cpu()], "logits": logits}
        shared["progress"] = progress
        return _run(member, classifier, inputs[rows], labels[rows], surrogate, None, shared)

    return attack_in_turn(cell, run, torch.arange(len(labels), device=inputs.device), logits, progress)


def _run(
    cell: Cell,
    classifier: Classifier,
    inputs: Tensor,
    labels: Tensor,
    surrogate: Classifier | None,
    fitted: Fitted | None,
    shared: dict[str, Any],
) -> AttackResult:
    row, threat_model, targets = _row_to_run(cell), cell.threat_model, shared["targets"]
    if (fitted is None) != (cell.fitted_on is None):
        raise InvalidInput(f"expected {cell.title} with what it has learned, and others without")
    if fitted is not None:
        shared["fitted"] = fitted
    searched: dict[str, Any] = {"grid": cell.grid or None, "pixels": cell.pixels, **shared, **cell.parameters}
    if cell.is_portfolio:
        return best_of(cell.search.members, classifier, inputs, labels, threat_model, **searched)
    if cell.is_best:
        return best_effort(
            row,
            classifier,
            inputs,
            labels,
            threat_model,
            reach=False,  # the parameters of a cell are all that it runs with
            **searched,
        )
    if cell.is_saturated:
        shared |= {"pixels": cell.pixels, **cell.parameters}
        return at_saturation(row, classifier, inputs, labels, threat_model, **shared)
    if (surrogate is None) == bool(cell.surrogate):
        raise InvalidInput(f"expected {cell.title} with the surrogate that it names, got it without or with another")
    if surrogate is not None and not row.learned:
        result = run_transfer(row, classifier, surrogate, inputs, labels, threat_model, **shared, **cell.parameters)
        return on_pixels(result, classifier, inputs) if cell.pixels else result
    if (
        CURVE in cell.measures
        and attack_of(row).kind == "minimum-norm"
        and not (
            # What fools one draw, or in fewer bits than the judge's, is no example.
            cell.pixels or classifier.random or inputs.is_cuda or _is_rounded(precision_of(row, cell.parameters))
        )
    ):
        trace = Trace(inputs.detach().float(), labels.to(inputs.device), targets, threat_model.norm)
        result = run_attack(row, classifier, inputs, labels, threat_model, trace=trace, **shared, **cell.parameters)
        return replace(result, curves=curves_of(trace, result))
    result = run_attack(row, classifier, inputs, labels, threat_model, **shared, **cell.parameters)
    result = replace(result, knowledge=cell.knowledge)
    return on_pixels(result, classifier, inputs) if cell.pixels else result


def _is_rounded(precision: str | None) -> bool:
    """Whether an attack's passes on a CPU are in fewer bits than the judge's; None: as torch is set."""
    return is_autocast() if precision is None else precision != "float32"


def _row_to_run(cell: Cell) -> Implementation:
    """The row of a cell; a user's attack that was read from a folder is looked for in its file."""
    name = cell.search.inside
    return find_implementation(name) if cell.is_foreign and is_file_name(name) else cell.row
