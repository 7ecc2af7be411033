"""Attacks some of the images of an attack run."""

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
    """Run the attack of a run on some of its images, and return the result.

    Args:
        cell: the run.
        classifier: the evaluated model.
        inputs: clean images, shape (N, C, H, W).
        labels: ground truth, shape (N,).
        first: index of the first of these images in the data. The random seed depends on it, so that shards differ.
        logits: logits of these images. None to compute them.
        surrogate: model on which the examples are made. Its predictions determine the targets. None if the run has no
            surrogate.
        fitted: the fitted attack, for a run with `fitted_on`; otherwise None.
        progress: called with the number of images that were just attacked.

    Raises:
        InvalidInput: if `fitted` or `surrogate` is missing for this run, or is not used by it.
        DavylampError: any error of the attack.
    """
    if (fitted is None) != (cell.fitted_on is None):
        raise InvalidInput(f"{cell.title}: fitted arrays must be given if, and only if, the attack is a fitted attack")
    if (surrogate is None) == bool(cell.surrogate):
        raise InvalidInput(f"{cell.title}: a surrogate must be given if, and only if, the run uses a surrogate")
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
    """Return the numeric precisions of the run's model calls: all that a search tries, otherwise a single one."""
    return cell.grid.get("precision", (precision_of(cell.row, cell.parameters),))


def _row_to_run(cell: AttackRun) -> Implementation:
    """Return the implementation to run. A user's attack that is known only from a record is loaded from its file."""
    name = cell.search.inside
    return find_implementation(name) if is_foreign(cell) and is_file_name(name) else cell.row
