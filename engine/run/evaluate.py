"""Runs a plan. Workers compute the missing tasks. This process locks the tasks and writes the results."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from filelock import FileLock

from ...adapters.models.remote.server_usage import ServerUsage
from ...adapters.running.fit import Fitted
from ...errors import DavylampError, InvalidInput, Unavailable
from ..attack_run import AttackRun, json_digest
from ..plan.plan import Plan
from ..store.columns import logits_of, read_examples
from ..store.other_records import fitted_of
from ..store.plan_records import forget_finished, note_failed, remove_plan, write_plan
from ..store.store import Record, ResultsStore
from .executor import Executor, Progress, label_of
from .local_executor import InProcessExecutor
from .run_index import RunIndex
from .task import Task, TaskResult

_POLL_SECONDS = 0.5


class EvaluationSummary(NamedTuple):
    """Summary of an evaluation.

    Args:
        done: number of new runs.
        kept: number of reused runs.
        failed: reason of each run that has no result.
        damaged: damaged files whose results were computed again.
        waited: number of runs that a different process finished during this call.
        seconds: wall time of this call.
        cells: number of runs of the plan. For a part of an evaluation, number of runs that have shards in this part.
        unfinished: number of these runs that still lack shards of other parts.
        unknown: models, attacks and metrics that cannot be identified completely, by name, with the reason. Their
            earlier runs are not reused.
        unmeasured: users' metrics that could not be computed in a new run, with the reason.
        traffic: queries of this call to servers of remote models.
    """

    done: int
    kept: int
    failed: dict[str, str]
    damaged: list[str]
    waited: int
    seconds: float
    cells: int = 0
    unfinished: int = 0
    unknown: Mapping[str, str] = {}
    unmeasured: Mapping[str, str] = {}
    traffic: ServerUsage = ServerUsage()

    @property
    def all_failed(self) -> bool:
        """Whether there were runs and all of them failed."""
        return 0 < self.cells <= len(self.failed)


def evaluate(
    plan: Plan,
    store: ResultsStore,
    *,
    executor: Executor | None = None,
    retry_failed: bool = False,
    trust_unknown: bool = False,
    progress: Progress | None = None,
) -> EvaluationSummary:
    """Run all runs of a plan that are missing in the results folder.

    The call can be killed at any time and repeated, and several processes may share a folder. Finished work is not
    repeated. The records do not depend on interruptions, except for the seconds.

    Args:
        plan: the plan. For a part of an evaluation (`plan.plan_for_part`), only the shards of this part are run, and
            the transfer tests of complete runs.
        store: results folder of the records.
        executor: executes the tasks. None for this process.
        retry_failed: whether to repeat failed runs, and runs with conflicting results.
        trust_unknown: whether to reuse results of models, attacks and metrics that cannot be identified completely. If
            False, only results of this plan are used.
        progress: called with the attack's name and the number of images just attacked, also for reused images.

    Raises:
        Unavailable: if the folder cannot be written. It is then unchanged. Also if a different process evaluates code
            in this folder that cannot be identified completely.
        InvalidInput: if a part has a model, attack or metric that cannot be identified completely. Its shards could not
            be combined with those of other parts.
    """
    if plan.part is not None and plan.unknown and not trust_unknown:
        name, why = next(each for parts in plan.unknown.values() for each in parts.items())
        raise InvalidInput(
            f"a part needs code that can be identified, but {name} cannot ({why}): separate parts could run "
            "different code. If all parts run the same code, add `trust_unknown`"
        )
    ledger = RunIndex(plan, store, retry_failed=retry_failed, trust_unknown=trust_unknown)
    return _Evaluation(ledger, executor or InProcessExecutor(), progress or (lambda *_: None)).run()


def fit_attacks(
    plan: Plan, store: ResultsStore, *, executor: Executor | None = None, retry_failed: bool = False
) -> dict[str, Fitted | str]:
    """Fit the attacks of a plan that have no stored fit yet. No image is attacked.

    Args:
        plan: plan with runs of fitted attacks.
        store: results folder of the fits.
        executor: executes the tasks. None for this process.
        retry_failed: whether to repeat failed fits.

    Returns:
        The fitted attack, or the reason why fitting failed, by key of the fit.

    Raises:
        Unavailable: as for `evaluate`.
    """
    ledger = RunIndex(plan, store, retry_failed=retry_failed)
    return _Evaluation(ledger, executor or InProcessExecutor(), lambda *_: None).learn()


class _Evaluation:
    def __init__(self, ledger: RunIndex, executor: Executor, progress: Progress):
        self.ledger, self.plan, self.store = ledger, ledger.plan, ledger.store
        self.executor, self.progress = executor, progress
        if isinstance(executor, InProcessExecutor):
            executor.take_over(self.plan.loaded)
        self.plan.loaded.forget()
        self.locks: dict[str, FileLock] = {}
        self.waited: set[str] = set()

    def run(self) -> EvaluationSummary:
        start, cells = time.monotonic(), self.plan.runs_in_this_part
        note_failed(self.store, self.plan.failed, (subject.model for subject, _ in self.plan.subjects))
        try:
            self._claim_unknown()
            self.ledger.finish_interrupted()
            kept = {cell.key for cell in cells if self.ledger.failure(cell) is not None}
            if len(kept) < len(cells):
                write_plan(self.store, self.plan.cells, self.plan.parts, self.plan.part.of if self.plan.part else 0)
            # Each needs the one before.
            self._work(_clean_tasks(self.plan))
            self._work(_fit_tasks(self.plan))
            self._work(_attack_tasks(self.plan))
            if self.plan.part is not None:  # parts that ended at once may have missed each other's last shard
                self.ledger.finish_interrupted()
            self._work(self._transfer_tasks())
        finally:
            for name, lock in list(self.locks.items()):
                self.store.release(name, lock)
        failures = {cell.key: self.ledger.failure(cell) for cell in cells}
        if self.plan.part is None:
            remove_plan(self.store, self.plan.cells)
        else:
            forget_finished(self.store)
        return EvaluationSummary(
            done=len(failures.keys() & self.ledger.ran),
            kept=len(kept - self.ledger.ran),
            failed={key: reason for key, reason in failures.items() if reason},
            damaged=self.ledger.damaged,
            waited=len(self.waited),
            seconds=time.monotonic() - start,
            cells=len(cells),
            unfinished=sum(reason is None for reason in failures.values()),
            unknown=self._unknown(),
            unmeasured=self.ledger.unmeasured,
            traffic=self.plan.traffic + self.ledger.traffic,
        )

    def learn(self) -> dict[str, Fitted | str]:
        try:
            self._claim_unknown()
            self._work(_fit_tasks(self.plan))
        finally:
            for name, lock in list(self.locks.items()):
                self.store.release(name, lock)
        return {cell.fit_key: _learned(cell, self.ledger) for cell in self.plan.cells}

    def _unknown(self) -> dict[str, str]:
        return {name: why for parts in self.plan.unknown.values() for name, why in parts.items()}

    def _claim_unknown(self) -> None:
        """Acquire the lock for code that cannot be identified. Without it, a second process would do the same work."""
        if self.ledger.trust_unknown or not self.plan.unknown:
            return
        for claim, name in dict(self._unknown_claims()).items():
            lock = self.store.claim(claim)
            if lock is None:
                raise Unavailable(
                    f"the code of {name} cannot be identified ({self._unknown()[name]}), and another process is "
                    f"already evaluating it in {self.store.folder}; wait until that process ends"
                )
            self.locks[claim] = lock

    def _unknown_claims(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each lock for unidentified code, with the name of the code."""
        for subject, _ in self.plan.subjects:
            for name in self.plan.unknown.get(subject.key, {}):
                yield f"unknown-{subject.key}", name
        for cell in self.plan.cells:
            for name in self.plan.unknown.get(cell.key, {}):
                yield f"unknown-{cell.subject.key}-{json_digest(name)}", name

    def _work(self, tasks: list[Task]) -> None:
        """Run the tasks.

        Tasks that a different process has locked are checked repeatedly until they are finished or free.
        """
        while tasks:
            taken: list[Task] = []
            for outcome in self.executor(self._claimed(tasks, taken), self.progress):
                self._save(outcome)
            tasks = []
            for task in taken:
                if not self.ledger.has(task):
                    tasks.append(task)
                else:
                    self._skip(task)
                    self.waited |= {task.cell.key} if task.cell else set()
            if tasks:
                time.sleep(_POLL_SECONDS)

    def _claimed(self, tasks: list[Task], taken: list[Task]) -> Iterator[Task]:
        for task in tasks:
            if self.ledger.has(task):
                self._skip(task)
                continue
            lock = self.store.claim(task.name)
            if lock is None:
                taken.append(task)
            elif self.ledger.has(task):  # another process finished it between the look and the claim
                self.store.release(task.name, lock)
                self._skip(task)
            else:
                self.locks[task.name] = lock
                try:
                    equipped = _equip(task, self.ledger)
                except (DavylampError, ValueError) as error:  # damaged images affect this task only
                    self.ledger.damaged.append(str(error))
                    self.store.release(task.name, self.locks.pop(task.name))
                    self._skip(task)
                else:
                    yield equipped

    def _skip(self, task: Task) -> None:
        """Report the images of a skipped task as progress, with the task's name if the callback accepts it."""
        skip = getattr(self.progress, "skip", None)
        if skip is None:
            self.progress("", task.images)
        else:
            skip(label_of(task), task.images)

    def _transfer_tasks(self) -> list[Task]:
        """Return tasks that test each successful run's examples on the other models with the same images.

        Every part that has a shard of a complete run returns these tasks. The run is always complete for the last part.
        """
        plan, tasks = self.plan, []
        for subject, cell in plan.transfers_here:
            if self.ledger.failure(cell) == "":
                whole = plan.originals.get(subject.model) == cell.subject.model
                source, device = plan.source(subject), plan.config.device
                tasks.append(Task("transfer", subject, source, plan.data, device, cell, keep_logits=whole))
            else:
                self.progress("", subject.images)
        return tasks

    def _save(self, outcome: TaskResult) -> None:
        self.ledger.save(outcome)
        self.store.release(outcome.task.name, self.locks.pop(outcome.task.name))


def _clean_tasks(plan: Plan) -> list[Task]:
    return [Task("clean", subject, source, plan.data, plan.config.device) for subject, source in plan.subjects_here]


def _fit_tasks(plan: Plan) -> list[Task]:
    """Return one task for each attack to fit. Runs that differ only in their evaluation images share the fit."""
    tasks: dict[str, Task] = {}
    for cell in plan.runs_in_this_part:
        if cell.fitted_on is not None and cell.fit_key not in tasks:
            on_scored = cell.fitted_on.data_digest == cell.subject.data_digest
            source, fit = plan.source(cell.subject), plan.fit if cell.fitted_on.images and not on_scored else None
            where = {"device": plan.config.device, "surrogate": plan.surrogate(cell), "fit": fit}
            tasks[cell.fit_key] = Task("fit", cell.subject, source, plan.data, cell=cell, **where)
    return [*tasks.values()]


def _attack_tasks(plan: Plan) -> list[Task]:
    keep = plan.config.keep_images or plan.config.transfer != "no" or bool(plan.originals)
    device = plan.config.device
    return [
        Task(
            "attack",
            cell.subject,
            plan.source(cell.subject),
            plan.data,
            device,
            cell,
            shard,
            keep,
            surrogate=plan.surrogate(cell),
        )
        for cell in plan.cells
        for shard in plan.shards(cell)
    ]


def _equip(task: Task, ledger: RunIndex) -> Task:
    """Add stored data to a task: the logits of clean images, or the examples to test on another model.

    Raises:
        Unavailable: if the examples cannot be read.
    """
    if task.cell is None:
        return task
    if task.kind == "transfer":
        return replace(task, adv_inputs=read_examples(ledger.store, task.cell))
    if task.kind == "fit":
        return task
    cell = task.cell
    if cell.fitted_on is not None:
        task = replace(task, fitted=_learned(cell, ledger))
    record = ledger.read_clean(task.subject.key)
    if record is None or record.failed or not _made_alike(record, cell):
        return task
    span = cell.shard_slice(task.shard)
    part = record.table.slice(span.start, len(span))
    return replace(task, logits=logits_of(part, "logits"))


def _learned(cell: AttackRun, ledger: RunIndex) -> Fitted | str:
    record = ledger.read("fits", cell.fit_key)
    if record is None:
        raise Unavailable(f"no fit of {cell.title} in fits/{cell.fit_key}; run the command again")
    return str(record.meta["reason"]) if record.failed else fitted_of(record)


def _made_alike(record: Record, cell: AttackRun) -> bool:
    """Whether clean logits were computed with the device type and torch version of the run.

    Their rounding is then equal.
    """
    device, torch = str(record.meta.get("device", "")), str(record.meta.get("versions", {}).get("torch", ""))
    return device.partition(":")[0] == cell.device and torch.startswith(f"{cell.torch}.")
