"""Computes metrics of finished runs later, from the images and examples that a results folder stores."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import torch
from torch import Tensor

from ...adapters import AttackResult, Classifier
from ...adapters.data.datasets import Data
from ...adapters.models.identity.digest import digest_data
from ...adapters.models.remote.server_usage import ServerUsage, pop_usage
from ...adapters.models.remote.transport import transport_with_cache
from ...adapters.models.sandbox.isolated import reset_processes
from ...adapters.result import Distances
from ...adapters.running.judge import perturbation_distances
from ...errors import DavylampError, InvalidInput, Unavailable
from ..attack_run import AttackRun, ModelOnData
from ..cell_defaults import ALL_MEASURES, CURVE
from ..measure_groups import is_group, read_group
from ..plan.cells import note_hierarchies, pin_metric_inputs, sealed_measures
from ..plan.config import Config
from ..sources import DataSource, LoadOptions, ModelSource, load_evaluated
from ..store.checksummed import Record
from ..store.columns import logits_of, restore_images
from ..store.image_results import DETECTED
from ..store.results import Results, RunResult, as_results, check_models
from ..store.store import ResultsStore
from ..user_metrics import plain_name
from .measure import RecordedOutputs, measured_symbols, metric_columns, needs_images, needs_model
from .optional_groups import optional_columns
from .provenance import versions
from .worker import TaskRunner

_CLOSE = 1e-5  # of a distance, between two devices


class MeasuredRun(NamedTuple):
    """Outcome for one run: "measured", "kept" if it had all metrics already, or "refused" with the reason."""

    cell: AttackRun
    state: str
    reason: str = ""
    unmeasured: Mapping[str, str] = {}


class MeasuringSummary(NamedTuple):
    """The outcome for each run of a folder, in the order of the runs. Also the queries to servers."""

    runs: tuple[MeasuredRun, ...]
    traffic: ServerUsage = ServerUsage()


@dataclass(frozen=True, repr=False, kw_only=True)
class _RecordedResult(AttackResult):
    """An `AttackResult` that was rebuilt from a record. The images that count in metrics are those of the record."""

    counted: Tensor

    @property
    def usable(self) -> Tensor:
        """Images that count in metrics, shape (N,), bool."""
        return self.counted


def measure_folder(  # noqa: PLR0913 - what is measured by position, the choices by keyword
    folder: str | Path | Results,
    measures: Sequence[str],
    *,
    models: Mapping[str, Classifier] | None = None,
    data: Data | None = None,
    only: Sequence[str] | None = None,
    neuron_profile: str = "",
    hierarchy: str = "",
    device: str = "cpu",
    loading: LoadOptions | None = None,
    progress: Callable[[str, int], object] | None = None,
) -> MeasuringSummary:
    """Compute metrics of the finished runs of a folder that were evaluated without them, and store them in its records.

    The columns are those that an evaluation with these measures stores. The call can be interrupted and repeated, and
    several processes may share a folder: each run's record is replaced at once.

    Args:
        folder: results folder, or its results.
        measures: groups of metrics, metrics of a group, and user metrics as "my.py:function".
        models: classifiers by name, instead of loading them.
        data: images, instead of loading them.
        only: names of models. None for all.
        neuron_profile: name of the data that define the ranges of the neurons, for "coverage".
        hierarchy: file with the hierarchy of classes, for semantic confusion.
        device: device of the computation. Values equal those of the evaluation bit by bit on the same kind of device.
        loading: options for loading models by name. None to load them in this process, with the folder's answer cache
            for servers.
        progress: called with a run's attack and 1 when it is finished.

    Raises:
        InvalidInput: if no measure is given, or one is recorded during the attack only.
        UnknownName: if there is no such metric, or a model of `only` is not in the folder.
        Unavailable: if there is no such folder, or it cannot be written.
    """
    if not measures:
        raise InvalidInput("expected at least one metric to measure, got none")
    config = Config(measures=tuple(measures), neuron_profile=neuron_profile, hierarchy=hierarchy)
    if CURVE in config.measures:
        raise InvalidInput(f"{CURVE} is recorded during the attack: evaluate with `measures={CURVE}`")
    asked = sealed_measures(replace(config, measures=pin_metric_inputs(config)))
    outcomes = as_results(folder)
    check_models(outcomes, only)
    loading = loading or LoadOptions(transport_with_cache(outcomes.store.folder))
    runs, traffic = list[MeasuredRun](), ServerUsage()
    for subject in outcomes.subjects.values():
        mine = [each for each in outcomes.done if each.cell.subject == subject]
        if only is not None and not subject.is_called(only):
            continue
        source = ModelSource(subject.model, None if models is None else models.get(subject.model), loading)
        work = _Subject(outcomes, subject, source, data, device)
        for each in mine:
            runs.append(work.measure(each, asked))
            (progress or _ignore)(each.cell.attack, 1)
        traffic += work.traffic
    return MeasuringSummary(tuple(runs), traffic)


class _Subject:
    """A model on its images, which are loaded only if a run lacks a measure that needs them."""

    def __init__(
        self,
        outcomes: Results,
        subject: ModelOnData,
        source: ModelSource,
        data: Data | None,
        device: str,
    ):
        self.outcomes, self.store, self.subject = outcomes, outcomes.store, subject
        self._source, self._data, self._device = source, data, device
        self._bench = TaskRunner()
        self._loaded: tuple[Classifier, Data] | None = None
        self._images: Data | None = None

    @property
    def traffic(self) -> ServerUsage:
        """Queries of the model to a server, if it was loaded."""
        return ServerUsage() if self._loaded is None else pop_usage(self._loaded[0])

    def measure(self, outcome: RunResult, asked: Sequence[str]) -> MeasuredRun:
        """Compute the requested metrics that one run lacks."""
        cell = outcome.cell
        known = {_settings(each) for each in cell.measured}
        lacking = [each for each in asked if _settings(each) not in known]
        if not lacking:
            return MeasuredRun(cell, "kept")
        name = f"measures-{cell.key}"
        lock = self.store.claim(name)
        if lock is None:
            return MeasuredRun(
                cell,
                "refused",
                "a different process is measuring it; run the command again when that process has ended",
            )
        try:
            return MeasuredRun(cell, "measured", "", self._measure(outcome, lacking))
        except DavylampError as error:
            return MeasuredRun(cell, "refused", " ".join(str(error).split()))
        finally:
            self.store.release(name, lock)

    def _measure(self, outcome: RunResult, lacking: Sequence[str]) -> dict[str, str]:
        """Measure a run and replace its record.

        Returns:
            The metrics that have no value, with the reasons.
        """
        cell, clean = outcome.cell, self.outcomes.clean.get(self.subject.key)
        _check_settings(cell, lacking)
        if clean is None:
            raise Unavailable("its clean predictions are missing; run `davylamp evaluate` again")
        record = self.store.read("cells", cell.key)
        if needs_images(lacking):
            _check_kept(self.store, cell)
        classifier, images = self._load_what_is_needed(lacking, record)
        metrics, optional, unmeasured = list[pa.Table](), list[pa.Table](), dict[str, str]()
        with ExitStack() as stack:
            if isinstance(classifier, Classifier):
                config = Config(measures=tuple(map(plain_name, lacking)))
                note_hierarchies(config, classifier)  # raises an error for classes in another order
                lacking = sealed_measures(replace(config, measures=pin_metric_inputs(config, classifier)))
                reset_processes(classifier)
                stack.enter_context(classifier.frozen())
            how: dict[str, Any] = {"measures": tuple(lacking)}
            for shard in range(cell.shards):
                span = cell.shard_slice(shard)
                how |= {"memory": self._bench.memory_of(self.subject, span)}
                result, inputs = self._result_of(outcome, record, clean.logits, images, shard)
                columns, maps, reasons = metric_columns(result, classifier, inputs, first=span.start, **how)
                columns |= {"adv_cam": maps} if "attention" in lacking else {}
                metrics.append(pa.table(columns))
                unmeasured |= reasons
                if isinstance(classifier, Classifier):
                    further, reasons = optional_columns(
                        result, classifier, inputs, **how, ranges_of=self._bench.ranges_of
                    )
                    optional.append(pa.table(further))
                    unmeasured |= reasons
        added, last = (
            pa.concat_tables(each, promote_options="default") for each in (metrics, optional or [pa.table({})])
        )
        before = {name: why for name, why in record.meta["unmeasured"].items() if name not in added.column_names}
        meta = {**record.meta, "unmeasured": {**before, **unmeasured}}
        meta |= {"added": list(dict.fromkeys((*cell.added, *lacking)))}
        meta |= {"added_on": {"device": self._device, "versions": versions()}}
        self.store.write("cells", cell.key, _with_columns(record.table, added, last), meta)
        return unmeasured

    def _load_what_is_needed(
        self, measures: Sequence[str], record: Record
    ) -> tuple[Classifier | RecordedOutputs, Data | None]:
        """Load the model and its images.

        If the facts about the model in the record suffice, the result has these facts and None instead.
        """
        if needs_model(measures):
            return self._load()
        if needs_images(measures) and self._images is None:
            self._images = self._load_images()
        return RecordedOutputs(record.meta.get("outputs"), DETECTED in record.table.column_names), self._images

    def _load(self) -> tuple[Classifier, Data]:
        if self._loaded is None:
            self._loaded = load_evaluated(self._bench, self.subject, self._source, self._data, self._device)
        return self._loaded

    def _load_images(self) -> Data:
        """Load the images. The model is loaded only if the size of the images depends on it."""
        with suppress(DavylampError):
            images = DataSource.of_subject(self.subject, self._data).load(None)
            if digest_data(images.inputs, images.labels) == self.subject.data_digest:
                return images
        return self._load()[1]

    def _result_of(
        self, outcome: RunResult, record: Record, logits: Tensor, images: Data | None, shard: int
    ) -> tuple[AttackResult, Any]:
        """Rebuild the result of one shard from its record.

        Returns:
            The result, and the clean images of the shard. None instead of the images if they are not loaded.
        """
        cell, device = outcome.cell, self._device
        span = cell.shard_slice(shard)
        rows, part = record.table.slice(span.start, len(span)), slice(span.start, span.stop)
        counted = torch.tensor(outcome.usable[part], device=device)
        if images is None:
            return _recorded_result(cell, rows, logits[part], None, counted), None
        inputs = images.inputs[part].to(device)
        adv_inputs = restore_images(self.store.read_images(f"{cell.key}-{shard}")).to(device)
        result = _recorded_result(cell, rows, logits[part], adv_inputs, counted)
        _check_examples(result, inputs)
        return result, inputs


def _settings(measure: str) -> str:
    """Return a measure without the digest of the data that it reads.

    The code of a user's metric is part of the result.
    """
    return plain_name(measure) if is_group(measure) else measure


def _check_settings(cell: AttackRun, lacking: Sequence[str]) -> None:
    """Raise InvalidInput if a group of metrics is already stored, measured with different settings."""
    known = {read_group(each).name: each for each in cell.measured if is_group(each)}
    for each in lacking:
        if is_group(each) and read_group(each).name in known:
            before = plain_name(known[read_group(each).name])
            advice = f"to use {plain_name(each)}, evaluate into a new folder"
            raise InvalidInput(f"it was measured with the settings {before}; {advice}")


def _check_kept(store: ResultsStore, cell: AttackRun) -> None:
    """Raise Unavailable unless the folder has the examples of every shard of a run."""
    missing = [n for n in range(cell.shards) if not store.images_path(f"{cell.key}-{n}").is_file()]
    if missing:
        some = "" if len(missing) == cell.shards else f" of {len(missing)} of {cell.shards} shards"
        raise Unavailable(f"its examples{some} were not stored; evaluate with `keep_images`")


def _check_examples(result: AttackResult, inputs: Tensor) -> None:
    """Raise Unavailable if the stored examples do not have the recorded distances."""
    made, recorded = perturbation_distances(inputs, result.adv_inputs).linf, result.distances.linf
    if not torch.allclose(made.to(recorded), recorded, rtol=0, atol=_CLOSE, equal_nan=True):
        raise Unavailable("the stored examples do not match the record: their distances differ")


def _recorded_result(
    cell: AttackRun, rows: pa.Table, logits: Tensor, adv_inputs: Tensor | None, counted: Tensor
) -> _RecordedResult:
    """Rebuild the result of an attack from its record. The examples are included if they are needed."""
    device = counted.device

    def column(name: str) -> Tensor:
        return torch.tensor(rows[name].to_numpy()).to(device)

    examples: Any = adv_inputs
    return _RecordedResult(
        implementation=cell.title,
        threat_model=cell.threat_model,
        parameters=cell.parameters,
        seed=cell.seed,
        adv_inputs=examples,
        logits=logits.to(device),
        adv_logits=logits_of(rows, "adv_logits").to(device),
        labels=column("label"),
        attacked=column("attacked"),
        success=column("success"),
        success_8bit=column("success_8bit"),
        distances=Distances(*map(column, Distances._fields)),
        forwards=column("forwards"),
        backwards=column("backwards"),
        seconds=column("seconds"),
        violations=tuple(tuple(text.split()) for text in rows["violations"].to_pylist()),
        targets=column("target") if cell.threat_model.targeted else None,
        knowledge=cell.knowledge,
        draws=cell.draws,
        draws_fooled=column("draws_fooled") if "draws_fooled" in rows.column_names else None,
        counted=counted,
    )


def _with_columns(table: pa.Table, metrics: pa.Table, optional: pa.Table) -> pa.Table:
    """Add columns to the table of a run, in the order of an evaluation. Columns with the same name are replaced.

    Args:
        table: the record.
        metrics: metrics of groups in `ALL_MEASURES`, then others. They are placed between the distances and the logits.
        optional: metrics of optional groups. They are placed at the end.
    """
    columns = {**_columns_of(table), **_columns_of(metrics), **_columns_of(optional)}
    names = [name for name in table.column_names if name not in optional.column_names]
    start, end = names.index("linf_8bit" if "linf_8bit" in names else "linf") + 1, names.index("adv_logits")
    others = dict.fromkeys((*names[start:end], *(name for name in metrics.column_names if name != "adv_cam")))
    measured = [symbol for symbol in measured_symbols(ALL_MEASURES) if symbol in others]
    middle = dict.fromkeys((*measured, *others))
    order = (*names[:start], *middle, *names[end:], *optional.column_names)
    return pa.table({name: columns[name] for name in order})


def _columns_of(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


def _ignore(_: str, __: int) -> None:
    """Ignore progress."""
