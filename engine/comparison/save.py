"""A comparison as cells of a results folder, so that tables and reports take it like an evaluation."""

import pyarrow as pa

from ...adapters import Classifier
from ...adapters.catalogue.lookup import accepts
from ...adapters.data.datasets import Data
from ...adapters.models.identity.digest import digest_data, digest_model
from ...errors import AttackFailed
from ..cell import Cell, ModelOnData
from ..plan.cells import conditions
from ..run.measure import result_table
from ..run.origin import describe_run
from ..run.task import Task, TaskResult
from ..run.worker import Workbench
from ..searches.kinds import parse_search
from ..sources import DataSource, ModelSource
from ..store.store import ResultsStore
from .compare import Comparison, Row

MEASURES = ("effect", "attention", "cost", "distance", "frequency")  # what takes seconds, not minutes


def keep_comparison(
    store: ResultsStore,
    comparison: Comparison,
    classifier: Classifier,
    data: Data,
    *,
    model: str,
    data_name: str,
    preset: str = "",
) -> None:
    """Write every row of a comparison that was not left out as a cell, and the model's predictions on the clean images.

    Args:
        store: where to.
        comparison: what `compare` found.
        classifier: the model that was compared on.
        data: the images that it was compared on, all of them.
        model: its name.
        data_name: their name.
        preset: what the cells belong to.

    Raises:
        Unavailable: if the store cannot be written.
    """
    inputs, labels = data.inputs, data.labels
    subject = ModelOnData(model, digest_model(classifier, model), data_name, digest_data(inputs, labels), len(labels))
    sources = ModelSource(model, classifier), DataSource(data_name, len(labels), data)
    clean = Workbench().do(Task("clean", subject, *sources, str(classifier.device)))
    if clean.table is not None:
        store.write("clean", subject.key, clean.table, describe_run(clean, preset=preset))
    for row in comparison.rows:
        if row.excused:  # as in an evaluation, which does not plan it
            continue
        cell = _cell(subject, comparison, row, str(classifier.device))
        task = Task("attack", subject, *sources, str(classifier.device), cell)
        reason = row.error if row.excused else f"{AttackFailed.__name__}: {row.error}"  # as an evaluation has it
        outcome = TaskResult(task, None, reason=reason)
        if row.result is not None:
            images = inputs.to(classifier.device)
            table, unmeasured = result_table(row.result, classifier, images, data.names, first=0, measures=MEASURES)
            spent = float(row.result.seconds.sum())
            outcome = TaskResult(task, table, seconds=spent, attack_seconds=spent, unmeasured=unmeasured, gpu=clean.gpu)
            outcome = outcome._replace(outputs=clean.outputs, output_note=clean.output_note)
        store.write("cells", cell.key, outcome.table or pa.table({}), describe_run(outcome, preset=preset))


def _cell(subject: ModelOnData, comparison: Comparison, row: Row, device: str) -> Cell:
    implementation = row.implementation
    cell_search = parse_search(implementation.name)
    return Cell(
        subject=subject,
        attack=implementation.name,
        threat_model=comparison.threat_model,
        parameters={name: value for name, value in comparison.parameters.items() if accepts(implementation, name)},
        seed=comparison.seed,
        measures=MEASURES,
        version=cell_search.version(implementation),
        implementation=implementation if implementation.given is not None else None,
        **conditions(device),
    )
