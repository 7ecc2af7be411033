"""Runs one task: loads its model and data, attacks and measures. The result is a table. No files are written."""

import time
from collections.abc import Callable, Collection
from contextlib import nullcontext
from typing import Any
from weakref import ref

import pyarrow as pa
import torch
from torch import Tensor

from ...adapters import Classifier
from ...adapters.data.datasets import Data
from ...adapters.data.streaming import describe_files, iter_batches
from ...adapters.models.ensemble import members_of
from ...adapters.models.identity.digest import digest_data, identify_model
from ...adapters.models.remote.server_usage import pop_usage, remote_models_in
from ...adapters.models.sandbox.isolated import reset_processes
from ...adapters.models.sandbox.isolation import attack_isolation_context
from ...adapters.models.state_guard import check_unchanged
from ...adapters.running.fit import Fitted, fit_attack
from ...adapters.running.readings import identify_asked
from ...adapters.running.sampling import clean_draws, judge_outputs
from ...adapters.running.seeding import seeded
from ...adapters.running.targets import class_of
from ...errors import AttackFailed, DavylampError, InvalidInput, ModelFailed, ModelSpoiled
from ...memory import release_unused_memory_if_low
from ..attack_run import AttackRun, ModelOnData
from ..attack_shard import attack_shard, precisions_of
from ..measure_groups import pinned_digest, read_group
from ..probes.probe_model import probe_model
from ..searches.saturation import SaturatedResult
from ..sources import LoadedCache
from ..store.columns import column_of_logits, column_of_values, compact_images
from ..store.image_results import DETECTED
from ..store.notes import describe_saturation
from ..store.other_records import fit_table
from .activations import GROUP, Ranges, ranges_of
from .measure import Memory, clean_table, result_table
from .optional_groups import optional_columns
from .task import Task, TaskResult

_REMEMBERED = 1024  # number of shards whose clean metrics are cached
_FILE = ".py:"  # part of the name of models and data from a user's file
_NOT_PLANNED = (
    "{} differs from the plan of this evaluation. Either its file was edited in the meantime (run the command again), "
    "or its function draws random numbers (set a seed in the function)"
)


class LruDict(dict[Any, Any]):
    """Dictionary that has only the entries that were added last."""

    def __init__(self, most: int):
        super().__init__()
        self.most = most

    def __setitem__(self, key: Any, value: Any) -> None:
        """Add an entry and remove the oldest ones."""
        super().__setitem__(key, value)
        while len(self) > self.most:
            del self[next(iter(self))]


class TaskRunner(LoadedCache):
    """Runs tasks one after the other. The last model and its images stay loaded for the next task."""

    def __init__(self) -> None:
        super().__init__()
        self._checked: tuple[Callable[[], Any], Callable[[], Any], ModelOnData | None] = (object, object, None)
        self._of_clean = LruDict(_REMEMBERED)
        self._ranges: tuple[Any, Ranges] = (None, {})
        self._spoiled: ModelSpoiled | None = None

    def do(self, task: Task, progress: Callable[[int], object] | None = None) -> TaskResult:
        """Run a task. An error becomes part of the result, so one failed run never stops an evaluation.

        Args:
            task: the task.
            progress: called with the number of images just attacked.

        Raises:
            ModelSpoiled: if an earlier attack has changed this process permanently. Results would be wrong.
        """
        start = time.perf_counter()
        if self._spoiled is not None:
            raise self._spoiled
        try:
            with attack_isolation_context(task.model.loading.isolation):
                classifier, data = self._load(task)
                reset_processes(classifier)
                with classifier.frozen(), seeded(0) if classifier.random else nullcontext():
                    outcome = self._do(task, classifier, data, progress)
                    _check_unchanged(task, classifier)
            self._load_anew(task, classifier)
        except Exception as error:  # the reason is stored, and the next run starts
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
            return TaskResult(
                task, None, seconds=time.perf_counter() - start, reason=reason, traffic=self._take_traffic()
            )
        else:
            gives = "" if classifier.outputs in (None, "logits") else classifier.outputs
            cells = () if task.cell is None else task.cell.members
            asked = {name for each in cells for name in precisions_of(each)} or {None}
            about = {"gpu": describe_gpu(classifier.device, asked), "traffic": self._take_traffic()}
            about |= {"outputs": gives, "output_note": classifier.output_note}
            return outcome._replace(seconds=time.perf_counter() - start, **about)
        finally:
            release_unused_memory_if_low()  # other workers may need it for their largest task

    def _load_anew(self, task: Task, classifier: Classifier) -> None:
        """Reload a model that an attack has changed permanently. If this fails, the error is recorded."""
        if (change := classifier.changed_by) is None:
            return
        self.forget()
        try:
            again = self.model(task.model, task.device)
            again.changed_by = change
            check_unchanged(again)
        except DavylampError as error:
            self._spoiled = ModelSpoiled(f"{error}; run the same command again to resume")

    def _take_traffic(self) -> dict[str, Any] | None:
        """Return the queries of the loaded models to servers since the last call. None if there were none."""
        loaded = [each[1] for each in (self._model, self._surrogate) if each is not None]
        traffic = pop_usage(*loaded)
        return traffic.spec if traffic else None

    def _load(self, task: Task) -> tuple[Classifier, Data]:
        """Load the model and the images of a task, and check that they match the plan.

        Models and data from a user's file are hashed again. The file may have been edited, or its functions may draw
        random numbers.

        Raises:
            InvalidInput: if the model or the images differ from the plan.
        """
        if task.cell is not None and task.kind == "attack" and _is_edited(task.cell):
            raise InvalidInput(_NOT_PLANNED.format(task.cell.search.inside))
        classifier, data, changed = self._look(task)
        if changed:  # or loaded for another plan
            self.forget()
            classifier, data, changed = self._look(task)
        if changed:
            raise InvalidInput(_NOT_PLANNED.format(changed))
        return classifier, data

    def _look(self, task: Task) -> tuple[Classifier, Data, str]:
        """Load the model and the images of a task. They are hashed only if they were not loaded already.

        Returns:
            The model, the images, and the name of the model or data set that differs from the plan. "" if both match.
        """
        classifier = self.model(task.model, task.device)
        data = self.data(task.data, classifier)
        model, inputs, subject = self._checked
        if model() is classifier and inputs() is data.inputs and subject == task.subject:
            return classifier, data, ""
        changed = _changed(task, classifier, data)
        if not changed:
            self._checked = (ref(classifier), ref(data.inputs), task.subject)
        return classifier, data, changed

    def _load_surrogate(self, task: Task) -> Classifier | None:
        """Load the surrogate of a task, and check that it matches the plan.

        Returns:
            The surrogate. None if examples are made on the model itself.

        Raises:
            InvalidInput: if the surrogate differs from the plan.
        """
        if not task.surrogate or task.cell is None:
            return None
        surrogate = self.surrogate(task.surrogate, task.device)
        if _changed_member(task, surrogate):
            self.forget_surrogate()  # it was loaded for another plan
            surrogate = self.surrogate(task.surrogate, task.device)
        if changed := _changed_member(task, surrogate):
            raise InvalidInput(_NOT_PLANNED.format(changed))
        return surrogate

    def _do(
        self, task: Task, classifier: Classifier, data: Data, progress: Callable[[int], object] | None
    ) -> TaskResult:
        if task.cell is None:
            inputs, labels = data.inputs.to(classifier.device), data.labels.to(classifier.device)
            logits, drawn = clean_draws(classifier, inputs, labels)
            table = clean_table(classifier, inputs, labels, data.names, logits, drawn)
            probes, named = probe_model(classifier, inputs, labels, logits), tuple(classifier.class_names)
            return TaskResult(task, table, probes=probes, class_names=named)
        if task.kind == "transfer":
            return TaskResult(task, _transfer(task, classifier, data.labels))
        if task.kind == "fit":
            fitted = self._fit(task, classifier, data)
            return TaskResult(task, fit_table(fitted), attack_seconds=fitted.seconds, fitted=fitted)
        if isinstance(task.fitted, str):
            raise AttackFailed(f"the attack could not be fitted: {task.fitted}")
        span = task.cell.shard_slice(task.shard)
        part = slice(span.start, span.stop)
        inputs, labels = data.inputs[part].to(classifier.device), data.labels[part].to(classifier.device)
        result = attack_shard(
            task.cell,
            classifier,
            inputs,
            labels,
            first=span.start,
            logits=task.logits,
            surrogate=self._load_surrogate(task),
            fitted=task.fitted,
            progress=progress,
        )
        shown: dict[str, Any] = {"measures": task.cell.measures, "memory": self.memory_of(task.subject, span)}
        table, unmeasured = result_table(result, classifier, inputs, data.names[part], first=span.start, **shown)
        further, why = optional_columns(result, classifier, inputs, **shown, ranges_of=self.ranges_of)
        for name, column in further.items():
            table = table.append_column(name, column)
        unmeasured = {**unmeasured, **why}
        images = compact_images(result.adv_inputs) if task.keep_images else None
        spent = float(result.seconds.sum())
        outcome = TaskResult(task, table, images, attack_seconds=spent, unmeasured=unmeasured, fitted=task.fitted)
        if isinstance(result, SaturatedResult):
            outcome = outcome._replace(saturation=describe_saturation(result))
        return outcome

    def memory_of(self, subject: ModelOnData, span: range) -> Memory:
        """Return the cache of values of a shard's clean images."""
        place = (subject.key, span.start, span.stop)
        if place not in self._of_clean:
            self._of_clean[place] = {}
        return self._of_clean[place]

    def ranges_of(self, classifier: Classifier, measure: str) -> Ranges:
        """Return the range of each neuron on the data of a coverage measure. The last ranges are cached.

        Raises:
            InvalidInput: if these data differ from the plan.
        """
        group, known = read_group(measure), self._ranges[0]
        if known is None or known[0]() is not classifier or known[1] != measure:
            name = group["profile"]
            if describe_files(classifier, name, None)[0] != pinned_digest(measure):
                raise InvalidInput(_NOT_PLANNED.format(name))
            made = ranges_of(classifier, iter_batches(classifier, name, None, GROUP), group["neurons"])
            self._ranges = ((ref(classifier), measure), made)
        return self._ranges[1]

    def _fit(self, task: Task, classifier: Classifier, scored: Data) -> Fitted:
        """Fit the attack of a task. If the plan has no fit images, the attack is fitted on the evaluation images.

        Raises:
            InvalidInput: if the images differ from the plan.
        """
        cell, learner = task.cell, self._load_surrogate(task) or classifier
        assert cell is not None
        inputs, labels, _ = scored if task.fit is None else task.fit.load(classifier, scored)
        known = cell.fitted_on
        if task.fit is not None and (known is None or digest_data(inputs, labels) != known.data_digest):
            raise InvalidInput(_NOT_PLANNED.format(task.fit.name))
        inputs, labels = inputs.to(learner.device), labels.to(learner.device)
        shared = {"seed": cell.seed, "target": class_of(cell.target)}
        return fit_attack(cell.row, learner, inputs, labels, cell.threat_model, **shared, **cell.parameters)


def _check_unchanged(task: Task, classifier: Classifier) -> None:
    """Raise ModelFailed if a server's outputs have changed during an attack."""
    if task.kind != "attack":
        return
    for part in remote_models_in(classifier):
        if part.has_changed():
            raise ModelFailed(
                f"{classifier.name}: the server's outputs have changed since the first query (an update, or drift); "
                "run the command again to start new runs for the current model"
            )


def _is_edited(cell: AttackRun) -> bool:
    """Whether the file of an attack was edited after the evaluation was planned."""
    given = [row.given for row in (each.row for each in cell.members) if row.given is not None]
    return any(each.path is not None and each.identity.digest not in cell.version for each in given)


def _changed(task: Task, classifier: Classifier, data: Data) -> str:
    """Return the name of a model or data set from a file that differs from the plan.

    "" if model and data match the plan.
    """
    if task.model.classifier is None and _FILE in task.model.name:
        identity = identify_asked(classifier, task.model.name, data.inputs)
        if not identity.reasons and identity.digest != task.subject.model_digest:
            return task.model.name
    if task.data.data is None and _FILE in task.data.name:
        return task.data.name if digest_data(data.inputs, data.labels) != task.subject.data_digest else ""
    return ""


def _changed_member(task: Task, surrogate: Classifier) -> str:
    """Return the name of the first surrogate that differs from the plan. "" if all surrogates match the plan."""
    planned = () if task.cell is None else task.cell.surrogate
    for source, member, known in zip(task.surrogate, members_of(surrogate), planned, strict=True):
        if source.classifier is None and _FILE in source.name:
            identity = identify_model(member, source.name)
            if not identity.reasons and identity.digest != known.model_digest:
                return source.name
    return ""


def describe_gpu(device: torch.device, asked: Collection[str | None] = (None,)) -> str:
    """Return the name of the GPU. If attacks use TF32 by torch's defaults, a note on this follows.

    Args:
        device: device of the model.
        asked: precisions of the attacks. None for torch's settings.

    Returns:
        The text. "" if the device is not a GPU.
    """
    if device.type != "cuda":
        return ""
    cudnn: Any = torch.backends.cudnn
    parts = {"convolutions": getattr(cudnn, "conv", cudnn), "matrix products": torch.backends.cuda.matmul}
    if "tf32" in asked:
        rounded = list(parts)
    else:
        rounded = [name for name, part in parts.items() if _in_tf32(part)] if None in asked else []
    words = [f"{' and '.join(rounded)} of attacks in TF32"] if rounded else []
    words += ["attacks in bfloat16"] if "bfloat16" in asked else []
    return torch.cuda.get_device_name(device) + (f" ({', '.join(words)}, judged in float32)" if words else "")


def _in_tf32(part: Any) -> bool:
    precision = getattr(part, "fp32_precision", None)  # from torch 2.9
    return part.allow_tf32 if precision is None else precision == "tf32"


def _transfer(task: Task, classifier: Classifier, labels: Tensor) -> pa.Table:
    """Return a model's predictions on the examples of another run.

    A prediction is null if its logits are not finite.
    """
    assert task.adv_inputs is not None
    labels = labels.to(classifier.device)
    drawn = judge_outputs(classifier, task.adv_inputs.to(classifier.device), labels, None, 0)
    logits = drawn.logits.cpu()
    silent = ~logits.isfinite().all(1)
    probabilities = logits.softmax(1).masked_fill(silent[:, None], torch.nan)
    columns = {
        "index": pa.array(range(len(labels))),
        "label": pa.array(labels.cpu().numpy()),
        "adv_predicted": pa.array(logits.argmax(1).numpy(), mask=silent.numpy()),
    }
    if classifier.outputs != "labels":
        of_label = probabilities.gather(1, labels.cpu()[:, None])[:, 0]
        columns["label_probability"] = pa.array(of_label.numpy())
        columns["adv_probability"] = pa.array(probabilities.amax(1).numpy())
    if classifier.detects:
        columns[DETECTED] = pa.array((logits.argmax(1) == logits.shape[1] - 1).logical_and(~silent).numpy())
    elif drawn.share is not None:  # rate of wrong samples, also for targeted attacks
        columns["draws_fooled"] = column_of_values(drawn.share)
    return pa.table(columns | ({"adv_logits": column_of_logits(logits)} if task.keep_logits else {}))
