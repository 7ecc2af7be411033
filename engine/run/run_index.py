"""Index of the records that a results folder contains for a plan. It reads and checks records, and joins shards."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ...adapters.models.remote.server_usage import ServerUsage, read_traffic
from ...adapters.paths import is_file_name
from ...errors import DavylampError, Unavailable
from ..attack_run import AttackRun, ModelOnData, json_digest
from ..plan.choices import chosen_of_cell
from ..plan.plan import Plan
from ..store.checksummed import ConflictingRecordsError, DamagedRecordError, Record
from ..store.notes import answers_change
from ..store.plan_records import join_shards, remove_pieces
from ..store.record_validation import read_records, record_error
from ..store.store import Kind, ResultsStore
from ..store.transfers import lacks_logits
from .provenance import run_metadata
from .task import Task, TaskResult

_KINDS: Mapping[str, Kind] = {"clean": "clean", "fit": "fits", "transfer": "transfer"}  # of tasks, as the store says


def with_stored_runs(plan: Plan, store: ResultsStore) -> Plan:
    """Replace planned runs by stored runs that have the same metrics and more.

    Every evaluation calls this function to find the stored runs that it can reuse. Call it before `plan_for_part`.

    Returns:
        The new plan.
    """
    if not store.keys("cells"):
        return plan
    known: dict[str, list[AttackRun]] = {}
    for _, record in read_records(store, "cells", (), headers=True):
        if not record.failed:
            cell = AttackRun.from_record(record.meta)
            known.setdefault(replace(cell, measures=()).key, []).append(cell)
    found: dict[str, AttackRun] = {}
    for cell in plan.cells:
        alike = known.get(replace(cell, measures=()).key, ())
        wider = [each for each in alike if {*cell.measures} <= {*each.measured}]
        stored = next((each for each in wider if each.key == cell.key), wider[0] if wider else None)
        if stored is not None:
            found[cell.key] = replace(cell, measures=stored.measures, added=stored.added)
    return replace_runs(plan, found)


def replace_runs(plan: Plan, found: Mapping[str, AttackRun]) -> Plan:
    """Return a plan in which some runs, given by key, are replaced by runs with other measures."""
    keys = {key: cell.key for key, cell in found.items()}
    return replace(
        plan,
        cells=tuple(found.get(cell.key, cell) for cell in plan.cells),
        unknown={keys.get(key, key): parts for key, parts in plan.unknown.items()},
        choices={keys.get(key, key): places for key, places in plan.choices.items()},
    )


class RunIndex:
    """Index of the records that a results folder already contains for a plan.

    Args:
        plan: the plan.
        store: the results folder.
        retry_failed: whether failed runs, and those with conflicting results, are repeated.
        trust_unknown: whether to use earlier records of models, attacks and metrics that cannot be identified
            completely.
    """

    def __init__(self, plan: Plan, store: ResultsStore, *, retry_failed: bool = False, trust_unknown: bool = False):
        self.plan, self.store = plan, store
        self.retry_failed, self.trust_unknown = retry_failed, trust_unknown
        self.ran: set[str] = set()
        self._finished: dict[str, str] = {}  # reason of the failure by key, or ""
        self.damaged: list[str] = []
        self.unmeasured: dict[str, str] = {}  # users' metrics that failed, with the reason
        self._retried: set[str] = set()
        self._clean: tuple[str, Record | None] = ("", None)  # key, and the record that was read last
        self.traffic = ServerUsage()  # of new tasks of this evaluation

    def has(self, task: Task) -> bool:
        """Whether a task is finished.

        For a shard, the record of the whole run is looked up last. Another process may join the shards of a run at any
        time, and then deletes them.
        """
        if task.kind != "attack" or task.cell is None:
            record = self._read_done(_KINDS.get(task.kind, "clean"), task.name)
            if record is None or (task.keep_logits and not record.failed and lacks_logits(record)):
                return False
            return task.kind != "clean" or not (answers_change(record.meta) and self._is_declared(task.name))
        if task.keep_images and not self.store.images_path(task.name).is_file():
            return bool(self.failure(task.cell))
        if self.failure(task.cell) is None and self._read_done("parts", task.name) is None:
            return self.failure(task.cell) is not None
        return True

    def _is_declared(self, subject: str) -> bool:
        """Whether the plan has a model as random.

        In an earlier evaluation, the same model may have been deterministic.
        """
        return any(cell.draws and cell.subject.key == subject for cell in self.plan.cells)

    def failure(self, cell: AttackRun) -> str | None:
        """Return the reason why a run has no result.

        Returns:
            The reason. "" if the run has a result. None if the run is not finished.
        """
        if cell.key not in self._finished:  # read and check once
            try:
                record = self._read_done("cells", cell.key)
            except (
                ConflictingRecordsError,
                DavylampError,
            ) as error:  # conflicting or unreadable results: the user decides
                self._finished[cell.key] = str(error)
            else:
                if record is not None:
                    self._finished[cell.key] = record.meta["reason"]
        return self._finished.get(cell.key)

    def read(self, kind: Kind, key: str) -> Record | None:
        """Return a valid record. None if there is none.

        A damaged file is reported and removed. It counts as missing.

        Raises:
            ConflictingRecordsError: if there are two different results of a run.
            DavylampError: if the file cannot be read, or was written in a different format.
        """
        try:
            record = self.store.read(kind, key)
            if why := record_error(kind, key, record):
                raise DamagedRecordError(f"{self.store.path(kind, key)} is damaged ({why})")
        except FileNotFoundError:
            return None
        except DamagedRecordError as damage:
            if kind == "cells" and isinstance(damage, ConflictingRecordsError) and not self.retry_failed:
                raise
            if str(damage) not in self.damaged:
                self.damaged.append(str(damage))
            self.store.remove(kind, key)
            return None
        return record if self._is_ours(record) else None

    def read_clean(self, subject: str) -> Record | None:
        """Return the record of a model's clean images. None if there is none.

        The last record is cached, because the next shards of the run need it, too.
        """
        if self._clean[0] != subject or self._clean[1] is None:
            self._clean = subject, self.read("clean", subject)
        return self._clean[1]

    def save(self, outcome: TaskResult) -> None:
        """Save the result of a task. If only this result cannot be written, the run counts as failed.

        Raises:
            Unavailable: if nothing can be written into the results folder.
        """
        self.traffic += read_traffic(outcome.traffic)
        try:
            self._save(outcome)
        except (DavylampError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
            if isinstance(error, Unavailable):
                raise
            reason = f"its result could not be saved: {type(error).__name__}: {' '.join(str(error).split())}"[:500]
            self._save(outcome._replace(table=None, images=None, reason=reason))

    def finish_interrupted(self) -> None:
        """Finish the work of a killed process: join complete shards, and delete shards that were already joined."""
        left = {key.partition("-")[0] for key in self.store.keys("parts")}
        for cell in self.plan.cells:
            if cell.key in left and self.failure(cell) == "":
                remove_pieces(self.store, cell)
            elif cell.key in left:
                self._join(cell)

    def _is_ours(self, record: Record) -> bool:
        """Whether this plan may use a record.

        A record of code that cannot be identified is valid only for the plan that made it.
        """
        if self.trust_unknown or not self.plan.unknown:
            return True
        meta = record.meta
        subjects = (meta.get("subject"), meta.get("spec", {}).get("subject"))
        keys = [ModelOnData(**subject).key for subject in subjects if subject]
        keys += [json_digest(meta["spec"])] if "spec" in meta else []
        return self.plan.unknown.keys().isdisjoint(keys) or meta.get("identity", {}).get("plan") == self.plan.name

    def _read_done(self, kind: Kind, key: str) -> Record | None:
        """Return a record, unless its task must be run again."""
        record = self.read(kind, key)
        again = record is not None and record.failed and self.retry_failed and key not in self._retried
        return None if again else record

    def _save(self, outcome: TaskResult) -> None:
        task, config = outcome.task, self.plan.config
        chosen = chosen_of_cell(config, task.cell) if task.cell else {}
        meta = run_metadata(outcome, preset=config.preset, chosen=chosen)
        keys = [task.subject.key, *((task.cell.subject.key, task.cell.key) if task.cell else ())]
        if unknown := {name: why for key in keys for name, why in self.plan.unknown.get(key, {}).items()}:
            meta["identity"] = {"unknown": list(unknown.values()), "plan": self.plan.name}
        if task.kind == "attack":
            self._save_attack(outcome, meta)
            return
        if outcome.table is None:
            self._retried.add(task.name)
        self.store.write(_KINDS.get(task.kind, "clean"), task.name, outcome.table or pa.table({}), meta)

    def _save_attack(self, outcome: TaskResult, meta: dict[str, Any]) -> None:
        task = outcome.task
        assert task.cell is not None
        self.ran.add(task.cell.key)
        if outcome.table is None:
            self._retried.add(task.cell.key)
            self.store.write("cells", task.cell.key, pa.table({}), meta)
            return
        for name, reason in (outcome.unmeasured or {}).items():
            if is_file_name(name):
                self.unmeasured.setdefault(name, reason)
        if outcome.images is not None:
            self.store.write_images(task.name, {"inputs": outcome.images, "labels": outcome.table["label"].to_numpy()})
        self.store.write("parts", task.name, outcome.table, meta)
        self._join(task.cell)

    def _join(self, cell: AttackRun) -> None:
        if join_shards(self.store, cell, lambda key: self.read("parts", key)):
            self._finished.pop(cell.key, None)
