"""Does one piece of work anywhere: load what it needs, attack, measure, hand back a table. It writes nothing."""

import time
from collections.abc import Callable

import pyarrow as pa
import torch
from torch import Tensor

from ...adapters import Classifier
from ...adapters.data.datasets import Data
from ...memory import give_memory_back
from ..attack.attack_cell import attack_shard
from ..probes.probe_model import probe_model
from ..sources import LastLoaded
from ..store.examples import compact_images
from .measure import clean_table, result_table
from .task import Task, TaskResult


class Workbench(LastLoaded):
    """Does tasks one after the other; keeps the last model and its images loaded."""

    def do(self, task: Task, progress: Callable[[int], object] | None = None) -> TaskResult:
        """Do a task; whatever goes wrong is its outcome, so that one cell never stops an evaluation.

        Args:
            task: what to do.
            progress: called with the number of images just attacked.
        """
        start = time.perf_counter()
        try:
            classifier = self.model(task.model, task.device)
            data = self.data(task.data, classifier)
            with classifier.frozen():
                outcome = self._do(task, classifier, data, progress)
        except Exception as error:  # the boundary of a cell: the reason is stored, and the next cell runs
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
            return TaskResult(task, None, seconds=time.perf_counter() - start, reason=reason)
        else:
            return outcome._replace(seconds=time.perf_counter() - start)
        finally:
            give_memory_back()  # other workers may need it for their largest task

    def _do(
        self, task: Task, classifier: Classifier, data: Data, progress: Callable[[int], object] | None
    ) -> TaskResult:
        if task.cell is None:
            inputs, labels = data.inputs.to(classifier.device), data.labels.to(classifier.device)
            logits = classifier.check(inputs, labels)
            table = clean_table(classifier, inputs, labels, data.names, logits)
            return TaskResult(task, table, probes=probe_model(classifier, inputs, labels, logits))
        if task.kind == "transfer":
            return TaskResult(task, _transfer(task, classifier, data.labels))
        span = task.cell.span(task.shard)
        part = slice(span.start, span.stop)
        inputs, labels = data.inputs[part].to(classifier.device), data.labels[part].to(classifier.device)
        result = attack_shard(
            task.cell, classifier, inputs, labels, first=span.start, logits=task.logits, progress=progress
        )
        table, unmeasured = result_table(
            result,
            classifier,
            inputs,
            data.names[part],
            first=span.start,
            measures=task.cell.measures,
            cams=task.cams,
        )
        images = compact_images(result.adv_inputs) if task.keep_images else None
        spent = float(result.seconds.sum())
        return TaskResult(task, table, images, attack_seconds=spent, unmeasured=unmeasured)


def _transfer(task: Task, classifier: Classifier, labels: Tensor) -> pa.Table:
    """What a model makes of the examples that were made on another one; no prediction where a logit is not finite."""
    assert task.adv_inputs is not None
    logits = classifier.predict_logits(task.adv_inputs.to(classifier.device)).cpu()
    silent = ~logits.isfinite().all(1)
    probabilities = logits.softmax(1).masked_fill(silent[:, None], torch.nan)
    return pa.table(
        {
            "index": pa.array(range(len(labels))),
            "label": pa.array(labels.cpu().numpy()),
            "adv_predicted": pa.array(logits.argmax(1).numpy(), mask=silent.numpy()),
            "label_probability": pa.array(probabilities.gather(1, labels.cpu()[:, None])[:, 0].numpy()),
            "adv_probability": pa.array(probabilities.amax(1).numpy()),
        }
    )
