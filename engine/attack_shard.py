"""Runs the attack of a run on some of its images."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from ..adapters import AttackResult, Classifier, Implementation, find_implementation
from ..adapters.paths import is_file_name
from ..adapters.running.fit import Fitted
from ..adapters.running.precision import precision_of
from ..adapters.running.requirements import detect_output_format
from ..adapters.running.sampling import clean_logits, sampling_context
from ..adapters.running.targets import targets_for
from ..errors import InvalidInput
from .attack_run import AttackRun, is_foreign
from .cell_defaults import CURVE


def attack_shard(  # noqa: PLR0913 - as run_attack
    cell: AttackRun,
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
    """Attack some images of a run.

    Args:
        cell: the run.
        classifier: the run's model.
        inputs: clean images, shape (N, C, H, W).
        labels: ground truth, shape (N,).
        first: index of the first image in the data. It makes the random numbers of shards differ.
        logits: logits of these images, if known.
        surrogate: model on which the examples are made, if the run has one. Its predictions determine the targets.
        fitted: the fitted attack, for a run with `fitted_on`.
        progress: called with the number of images just attacked.

    Raises:
        DavylampError: any error of the attack.
    """
    if (fitted is None) != (cell.fitted_on is None):
        raise InvalidInput(f"{cell.title}: expected fitted arrays if and only if the attack is fitted")
    if (surrogate is None) == bool(cell.surrogate):
        raise InvalidInput(f"{cell.title}: expected a surrogate if and only if the run names one")
    options: dict[str, Any] = {"seed": cell.seed, "first": first, "progress": progress, "eight_bit": cell.pixels}
    options |= {"grid": cell.grid} if cell.grid else {}
    options |= {} if surrogate is None else {"surrogate": surrogate}
    options |= {} if fitted is None else {"fitted": fitted}
    options |= {"with_curves": True} if CURVE in cell.measures and not cell.search.searches_radius else {}
    options |= cell.search.options_of_cells
    with (
        sampling_context(classifier, draws=cell.draws or None, eot=cell.eot),
        sampling_context(surrogate or classifier, eot=cell.eot),
    ):
        if cell.threat_model.targeted:
            logits = clean_logits(classifier, inputs, labels, logits)
            detect_output_format(surrogate or classifier, inputs)
            seen = logits if surrogate is None else surrogate.predict_logits(inputs)
            targets = targets_for(surrogate or classifier, seen, labels, cell.target, cell.seed + first)
            options |= {"targets": targets}
        nouns = classifier, inputs, labels, cell.threat_model
        result = cell.search.run(_row_to_run(cell), *nouns, logits=logits, **options, **cell.parameters)
    return result if fitted is None else replace(result, knowledge=cell.knowledge)


def precisions_of(cell: AttackRun) -> tuple[str | None, ...]:
    """Return the numeric precisions of the run's model calls: one, or all those that a search tries."""
    return cell.grid.get("precision", (precision_of(cell.row, cell.parameters),))


def _row_to_run(cell: AttackRun) -> Implementation:
    """Return the run's implementation. A user's attack that is known from a record is loaded from its file."""
    name = cell.search.inside
    return find_implementation(name) if is_foreign(cell) and is_file_name(name) else cell.row
