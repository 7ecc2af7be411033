"""One piece of work, done anywhere: load what it needs, attack, measure, hand back a table. It writes nothing."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from ...adapters import AttackResult, Classifier, run_attack
from ...adapters.data.datasets import Data, load_data_for
from ...adapters.models.memory import give_memory_back
from ...adapters.models.zoo.load import load_model
from ..cell import Cell, Subject, strip_best
from ..comparison.compare import choose_targets
from ..probes.probe_model import probe_model
from ..store.examples import compact_images, restore_images
from ..store.outcomes import logits_of
from ..store.store import Record
from .measure import clean_table, result_table


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from: a name that `load_model` knows, or the classifier itself."""

    name: str
    classifier: Classifier | None = None

    def load(self, device: str) -> Classifier:
        """The classifier on a device."""
        return load_model(self.name, device) if self.classifier is None else self.classifier.to(device)


@dataclass(frozen=True)
class DataSource:
    """Where images come from: a name that `load_data` knows and how many of them, or the images themselves."""

    name: str
    limit: int | None = None
    data: Data | None = None

    def load(self, classifier: Classifier) -> Data:
        """The images, prepared for a classifier."""
        if self.data is not None:
            end, own = self.limit, self.data
            return Data(own.inputs[:end], own.labels[:end], own.names[:end])
        return load_data_for(classifier, self.name, self.limit)


@dataclass(frozen=True, eq=False)
class Task:
    """A piece of work.

    Args:
        kind: "clean" predictions, one shard of an "attack", or a "transfer" of its examples to another model.
        subject: the model (for "transfer" the one that is tested) and its images.
        model: where that model comes from.
        data: where its images come from.
        device: where to compute.
        cell: what to run, or whose examples to test; None for "clean".
        shard: which piece of the cell.
        keep_images: hand back the adversarial images too.
        logits: of the model on the shard's clean images, if they are known.
        cams: clean activation maps of the shard's labels, if they are known.
        adv_inputs: the examples to test on another model.
    """

    kind: Literal["clean", "attack", "transfer"]
    subject: Subject
    model: ModelSource
    data: DataSource
    device: str = "cpu"
    cell: Cell | None = None
    shard: int = 0
    keep_images: bool = False
    logits: np.ndarray | None = None
    cams: Any = None
    adv_inputs: np.ndarray | None = None

    @property
    def name(self) -> str:
        """Unique within a results folder."""
        if self.cell is None:
            return self.subject.key
        if self.kind == "transfer":
            return f"{self.cell.key}-{self.subject.key}"
        return f"{self.cell.key}-{self.shard}"

    @property
    def images(self) -> int:
        """How many images the work is about."""
        return self.subject.images if self.kind != "attack" or self.cell is None else len(self.cell.span(self.shard))


class Outcome(NamedTuple):
    """What came of a task: a table, or the reason why there is none; `unmeasured` metrics with their reasons.

    `probes` are those of the model, for "clean".
    """

    task: Task
    table: pa.Table | None
    images: np.ndarray | None = None
    seconds: float = 0.0
    attack_seconds: float = 0.0
    reason: str = ""
    unmeasured: Mapping[str, str] | None = None
    probes: Mapping[str, Any] | None = None


class Workbench:
    """Does tasks one after the other; keeps the last model and its images loaded."""

    def __init__(self) -> None:
        self._model: tuple[Any, Classifier] | None = None
        self._data: tuple[Any, Data] | None = None

    def do(self, task: Task, progress: Callable[[int], object] | None = None) -> Outcome:
        """Do a task; whatever goes wrong is its outcome, so that one cell never stops an evaluation.

        Args:
            task: what to do.
            progress: called with the number of images just attacked.
        """
        start = time.perf_counter()
        try:
            classifier = self.model(task.model, task.device)
            data = self.data(task.data, classifier)
            outcome = self._do(task, classifier, data, progress)
        except Exception as error:  # the boundary of a cell: the reason is stored, and the next cell runs
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
            return Outcome(task, None, seconds=time.perf_counter() - start, reason=reason)
        else:
            return outcome._replace(seconds=time.perf_counter() - start)
        finally:
            give_memory_back()  # other workers may need it for their largest task

    def model(self, source: ModelSource, device: str) -> Classifier:
        """The classifier of a source, loaded once as long as no other is asked for."""
        key = (source.name, id(source.classifier), device)
        if self._model is None or self._model[0] != key:
            self._model = (key, source.load(device))
        return self._model[1]

    def data(self, source: DataSource, classifier: Classifier) -> Data:
        """The images of a source, loaded once as long as no others are asked for."""
        made_for = (classifier.resize, classifier.crop, classifier.interpolation)
        made_for = (*made_for, classifier.channels, classifier.stated_classes)
        key = (source.name, source.limit, id(source.data), *made_for)
        if self._data is None or self._data[0] != key:
            self._data = (key, source.load(classifier))
        return self._data[1]

    def _do(self, task: Task, classifier: Classifier, data: Data, progress: Callable[[int], object] | None) -> Outcome:
        if task.cell is None:
            inputs = data.inputs.to(classifier.device)
            table = clean_table(classifier, inputs, data.labels, data.names)
            logits = logits_of(Record(table, {}), "logits")
            return Outcome(task, table, probes=probe_model(classifier, inputs, data.labels, logits))
        if task.kind == "transfer":
            return Outcome(task, _transfer(task, classifier, data.labels))
        span = task.cell.span(task.shard)
        part = slice(span.start, span.stop)
        inputs, labels = data.inputs[part].to(classifier.device), data.labels[part].to(classifier.device)
        logits = None if task.logits is None else torch.tensor(task.logits)
        result = attack_shard(task.cell, classifier, inputs, labels, first=span.start, logits=logits, progress=progress)
        cams = None if task.cams is None else torch.tensor(task.cams)
        table, unmeasured = result_table(
            result,
            classifier,
            inputs,
            data.names[part],
            first=span.start,
            measures=task.cell.measures,
            cams=cams,
        )
        images = compact_images(result.adv_inputs) if task.keep_images else None
        spent = float(result.seconds.sum())
        return Outcome(task, table, images, attack_seconds=spent, unmeasured=unmeasured)


def attack_shard(
    cell: Cell,
    classifier: Classifier,
    inputs: Tensor,
    labels: Tensor,
    *,
    first: int = 0,
    logits: Tensor | None = None,
    progress: Callable[[int], object] | None = None,
) -> AttackResult:
    """Run a cell's attack on some of its images.

    Args:
        cell: what to run.
        classifier: the cell's model.
        inputs: clean images, shape (N, C, H, W).
        labels: shape (N,).
        first: place of the first of them in the data; with it a shard draws random numbers of its own.
        logits: of these images, if they are known.
        progress: called with the number of images just attacked.

    Raises:
        DavylampError: whatever the attack raises.
    """
    from ..attack.best_effort import best_effort, on_pixels

    targets = None
    if cell.threat_model.targeted:
        logits = classifier.check(inputs, labels, logits=logits)
        targets = choose_targets(logits, labels, cell.target, cell.seed + first)
    name, threat_model = strip_best(cell.attack), cell.threat_model
    shared: dict[str, Any] = {"targets": targets, "seed": cell.seed, "first": first, "logits": logits}
    shared["progress"] = progress
    if cell.is_best:
        return best_effort(
            name,
            classifier,
            inputs,
            labels,
            threat_model,
            grid=cell.grid or None,
            pixels=cell.pixels,
            reach=False,  # the parameters of a cell are all that it runs with
            **shared,
            **cell.parameters,
        )
    result = run_attack(name, classifier, inputs, labels, threat_model, **shared, **cell.parameters)
    return on_pixels(result, classifier, inputs) if cell.pixels else result


def _transfer(task: Task, classifier: Classifier, labels: Tensor) -> pa.Table:
    """What a model makes of the examples that were made on another one; no prediction where a logit is not finite."""
    assert task.adv_inputs is not None
    logits = classifier.predict_logits(restore_images(task.adv_inputs).to(classifier.device)).cpu()
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
