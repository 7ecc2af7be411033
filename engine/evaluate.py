"""Run what a results folder lacks: claim, do, save, one piece after the other; only this process writes."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from filelock import FileLock

from .cell import Cell
from .chosen import chosen_of_cell
from .executors import Executor, Progress, ThisProcess
from .origin import describe_run
from .outcomes import logits_of
from .plan import Plan
from .planned import forget_plan, note_failed, note_plan
from .store import Damaged, Kind, Record, ResultsStore
from .work import Outcome, Task

_POLL_SECONDS = 0.5


class Summary(NamedTuple):
    """What an evaluation did.

    Args:
        done: cells that were run now.
        kept: cells that were there already.
        failed: cells without a result, with the reason of each.
        damaged: files that could not be trusted and were computed again.
        waited: cells that another process did meanwhile.
        seconds: wall time of this call.
    """

    done: int
    kept: int
    failed: dict[str, str]
    damaged: list[str]
    waited: int
    seconds: float


def evaluate(
    plan: Plan,
    store: ResultsStore,
    *,
    executor: Executor | None = None,
    retry_failed: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Run every cell of a plan that the store does not have.

    It can be killed at any moment and called again; several processes may share a store. What is done is never done
    again, and the records are the same however often it was interrupted (the seconds aside).

    Args:
        plan: what to run.
        store: where the records go.
        executor: where the work is done; None: in this process.
        retry_failed: run failed cells again.
        progress: called with a cell's attack and the number of images just attacked, also for images that were kept.

    Raises:
        Unavailable: if the store cannot be written; it stays as it was.
    """
    return _Evaluation(plan, store, executor or ThisProcess(), retry_failed, progress or (lambda *_: None)).run()


class _Evaluation:
    def __init__(self, plan: Plan, store: ResultsStore, executor: Executor, retry_failed: bool, progress: Progress):
        self.plan, self.store, self.executor = plan, store, executor
        self.retry_failed, self.progress = retry_failed, progress
        self.locks: dict[str, FileLock] = {}
        self.ran: set[str] = set()
        self.retried: set[str] = set()
        self.finished: dict[str, str] = {}  # why a cell failed, or nothing
        self.damaged: list[str] = []
        self.waited: set[str] = set()

    def run(self) -> Summary:
        start = time.monotonic()
        note_failed(self.store, self.plan.failed, (subject.model for subject, _ in self.plan.subjects))
        self._settle()
        kept = {cell.key for cell in self.plan.cells if self._finished(cell)}
        if len(kept) < len(self.plan.cells):
            note_plan(self.store, self.plan.cells)
        try:
            # Each needs the one before.
            for list_tasks in (self._clean_tasks, self._attack_tasks, self._transfer_tasks):
                self._work(list_tasks())
        finally:
            for name, lock in list(self.locks.items()):
                self.store.release(name, lock)
        finished = [cell.key for cell in self.plan.cells if self._finished(cell)]
        forget_plan(self.store, self.plan.cells)
        failed = {key: self.finished[key] for key in finished if self.finished[key]}
        done = len({cell.key for cell in self.plan.cells} & self.ran)
        return Summary(done, len(kept - self.ran), failed, self.damaged, len(self.waited), time.monotonic() - start)

    def _work(self, tasks: list[Task]) -> None:
        """Do the tasks; those that another process has are looked at again until they are done or free."""
        while tasks:
            taken: list[Task] = []
            for outcome in self.executor(self._claimed(tasks, taken), self.progress):
                self._save(outcome)
            tasks = []
            for task in taken:
                if not self._has(task):
                    tasks.append(task)
                else:
                    self.progress("", task.images)
                    self.waited |= {task.cell.key} if task.cell else set()
            if tasks:
                time.sleep(_POLL_SECONDS)

    def _claimed(self, tasks: list[Task], taken: list[Task]) -> Iterator[Task]:
        for task in tasks:
            if self._has(task):
                self.progress("", task.images)
                continue
            lock = self.store.claim(task.name)
            if lock is None:
                taken.append(task)
            elif self._has(task):  # another process finished it between the look and the claim
                self.store.release(task.name, lock)
                self.progress("", task.images)
            else:
                self.locks[task.name] = lock
                yield self._equip(task)

    def _clean_tasks(self) -> list[Task]:
        device = self.plan.config.device
        return [Task("clean", subject, source, self.plan.data, device) for subject, source in self.plan.subjects]

    def _attack_tasks(self) -> list[Task]:
        config, tasks = self.plan.config, []
        keep = config.keep_images or config.transfer != "no"
        for cell in self.plan.cells:
            source = self.plan.source(cell.subject)
            for shard in range(cell.shards):
                own = Task("attack", cell.subject, source, self.plan.data, config.device, cell, shard, keep)
                tasks.append(own)
        return tasks

    def _transfer_tasks(self) -> list[Task]:
        """Every cell's examples on the other models that see the same images; a failed cell has none."""
        plan, tasks = self.plan, []
        for subject, cell in plan.transfers:
            record = self._read("cells", cell.key)
            if record is not None and not record.failed:
                tasks.append(Task("transfer", subject, plan.source(subject), plan.data, plan.config.device, cell))
            else:
                self.progress("", subject.images)
        return tasks

    def _equip(self, task: Task) -> Task:
        """The task with what only the store has: clean logits and activation maps, or the examples to test."""
        if task.kind == "transfer" and task.cell:
            task = replace(task, adv_inputs=self._images(task.cell))
        elif task.cell:
            record = self._read("clean", task.subject.key)
            span, measures = task.cell.span(task.shard), task.cell.measures
            if record is not None and not record.failed:
                task = replace(task, logits=logits_of(record, "logits")[span.start : span.stop].numpy())
                if "attention" in measures and record.table["cam"].null_count == 0:
                    task = replace(task, cams=record.table["cam"].slice(span.start, len(span)).to_pylist())
        return task

    def _images(self, cell: Cell) -> np.ndarray:
        shards = [self.store.read_images(f"{cell.key}-{shard}") for shard in range(cell.shards)]
        if len({shard.dtype for shard in shards}) > 1:
            shards = [s / np.float32(255) if s.dtype == np.uint8 else s for s in shards]
        return np.concatenate(shards)

    def _has(self, task: Task) -> bool:
        """Whether nothing is left to do. The cell is looked at again last: its parts go away when it is there."""
        if task.kind != "attack" or task.cell is None:
            return self._is_done("clean" if task.kind == "clean" else "transfer", task.name)
        if task.keep_images and not self.store.images_path(task.name).is_file():
            record = self._read("cells", task.cell.key)
            return record is not None and record.failed and self._is_done("cells", task.cell.key)
        cell = task.cell
        return self._finished(cell) or self._is_done("parts", task.name) or self._finished(cell)

    def _finished(self, cell: Cell) -> bool:
        if cell.key not in self.finished and (record := self._read_done("cells", cell.key)) is not None:
            self.finished[cell.key] = record.meta["reason"]  # read and checked once is enough
        return cell.key in self.finished

    def _is_done(self, kind: Kind, key: str) -> bool:
        return self._read_done(kind, key) is not None

    def _read_done(self, kind: Kind, key: str) -> Record | None:
        """A record that is not to be computed again."""
        record = self._read(kind, key)
        again = record is not None and record.failed and self.retry_failed and key not in self.retried
        return None if again else record

    def _read(self, kind: Kind, key: str) -> Record | None:
        """A record that can be trusted; a damaged file is noted and counts as not there."""
        try:
            return self.store.read(kind, key)
        except FileNotFoundError:
            return None
        except Damaged as damage:
            if str(damage) not in self.damaged:
                self.damaged.append(str(damage))
            self.store.remove(kind, key)
            return None

    def _save(self, outcome: Outcome) -> None:
        task = outcome.task
        config = self.plan.config
        chosen = chosen_of_cell(config, task.cell) if task.cell else {}
        meta = describe_run(outcome, preset=config.preset, chosen=chosen)
        if task.kind == "attack":
            self._save_attack(outcome, meta)
        else:
            if outcome.table is None:
                self.retried.add(task.name)
            self.store.write(task.kind, task.name, outcome.table or pa.table({}), meta)
        self.store.release(task.name, self.locks.pop(task.name))

    def _save_attack(self, outcome: Outcome, meta: dict[str, Any]) -> None:
        task = outcome.task
        assert task.cell is not None
        self.ran.add(task.cell.key)
        if outcome.table is None:
            self.retried.add(task.cell.key)
            self.store.write("cells", task.cell.key, pa.table({}), meta)
            return
        if outcome.images is not None:
            self.store.write_images(task.name, {"inputs": outcome.images, "labels": outcome.table["label"].to_numpy()})
        self.store.write("parts", task.name, outcome.table, meta)
        self._join(task.cell)

    def _join(self, cell: Cell) -> None:
        """Put the pieces of a cell together once all are there."""
        parts = [self._read("parts", f"{cell.key}-{shard}") for shard in range(cell.shards)]
        found = [part for part in parts if part is not None]
        if len(found) < cell.shards:
            return
        meta = dict(found[0].meta)
        for name in ("seconds", "attack_seconds"):
            meta[name] = sum(part.meta[name] for part in found)
        meta["unmeasured"] = {symbol: why for part in found for symbol, why in part.meta["unmeasured"].items()}
        self.store.write("cells", cell.key, pa.concat_tables([part.table for part in found]), meta)
        self._remove_parts(cell)

    def _settle(self) -> None:
        """Finish what a killed run left: pieces of a cell all there but apart, or put together but not yet removed."""
        left = {key.partition("-")[0] for key in self.store.keys("parts")}
        for cell in self.plan.cells:
            if cell.key in left:
                record = self._read("cells", cell.key)
                if record is None or record.failed:
                    self._join(cell)
                else:
                    self._remove_parts(cell)

    def _remove_parts(self, cell: Cell) -> None:
        for shard in range(cell.shards):
            self.store.remove("parts", f"{cell.key}-{shard}")
