"""Process of a task: plans, requests existing runs, and evaluates. It accesses only the task's folder.

`job.json` describes the task. The process writes `keys.json` when the task's runs are known. It then waits for the file
`given`, which the worker writes after it has copied existing runs into `results/`. `progress.json` and `outcome.json`
report the state of the task.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import DavylampError, InvalidInput
from .sandboxed import machine_bytes

_GIVEN_SECONDS = 300.0
_PROGRESS_SECONDS = 0.3


def main() -> int:
    """Run the task in the folder named on the command line. Return 0 if at least one run is finished."""
    from ...adapters.user_code_guard import protect_process
    from ...memory import keep_freed_memory

    folder = Path(sys.argv[1])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    keep_freed_memory()
    protect_process()
    try:
        _limit_memory(folder)
        outcome = run_task(folder)
    except DavylampError as error:
        outcome = {"error": str(error)}
    except MemoryError:
        outcome = {"error": "it needs more memory than this machine has"}
    write_json(folder / "outcome.json", outcome)
    return 1 if "error" in outcome else 0


def _limit_memory(folder: Path) -> None:
    """Set a memory limit that leaves a fifth of the machine's memory free.

    With a GPU there is no limit, because its driver reserves more memory than exists.
    """
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    if sys.platform.startswith("linux") and all(each["device"] == "cpu" for each in job["configs"]):
        import resource

        size = machine_bytes() * 4 // 5
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def write_json(path: Path, document: Any) -> None:
    """Write a JSON file atomically."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(document), encoding="utf-8")
    draft.replace(path)


def run_task(folder: Path) -> dict[str, Any]:
    """Plan and evaluate the job in a folder's `job.json`, and return the outcome.

    Raises:
        DavylampError: If nothing can be evaluated.
    """
    from ...engine.run.choose import choose_executor
    from ...engine.run.evaluate import evaluate
    from ...engine.store.store import ResultsStore

    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    plans, left_out = _plan(folder, job["configs"])
    store = ResultsStore(folder / "results")
    write_json(folder / "keys.json", {"cells": _keys(plans)})
    _wait_for(folder / "given")
    device = plans[0][1].config.device
    executor = choose_executor(job["executor"], workers=job["workers"], address=job["address"], devices=(device,))
    progress = _Progress(folder / "progress.json", sum(plan.images for _, plan in plans))
    failed: dict[str, str] = {}
    done = kept = 0
    for _, plan in plans:
        # Unidentified objects are keyed by their file, which never changes here, so existing runs are valid.
        rules = {"trust_unknown": True, "retry_failed": job["retry_failed"]}
        summary = evaluate(plan, store, executor=executor, progress=progress, **rules)
        failed |= summary.failed
        done, kept = done + summary.done, kept + summary.kept
        left_out |= dict(plan.failed)
    progress.write()
    return {"done": done, "kept": kept, "failed": failed, "left_out": left_out}


def _plan(folder: Path, configs: Sequence[dict[str, Any]]) -> tuple[list[tuple[int, Any]], dict[str, str]]:
    """Return a plan for each data set that can be evaluated, with its index, and the errors of the others."""
    from ...engine.plan.build_plan import make_plan
    from ...engine.plan.config_file import config_from, write_config

    plans, left_out = [], {}
    for place, table in enumerate(configs):
        try:
            config = config_from(table)
            plans.append((place, make_plan(config)))
            (folder / f"config-{place}.toml").write_text(write_config(config), encoding="utf-8")
        except DavylampError as error:
            left_out[str(table.get("data"))] = str(error)
    if not plans:
        raise InvalidInput("; ".join(dict.fromkeys(left_out.values())))
    return plans, left_out


def _keys(plans: Sequence[tuple[int, Any]]) -> dict[str, Any]:
    """Return, for each run, the indices of data and attacks, and the keys of the records that it depends on."""
    return {
        cell.key: {
            "data": place,
            "attacks": list(plan.choices[cell.key]),
            "clean": cell.subject.key,
            "fit": cell.fit_key,
            "seed": cell.seed,
        }
        for place, plan in plans
        for cell in plan.cells
    }


def _wait_for(path: Path) -> None:
    end = time.monotonic() + _GIVEN_SECONDS
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.05)


class _Progress:
    """Counts finished images, and writes the count periodically."""

    def __init__(self, path: Path, images: int):
        self.path, self.images, self.done, self.written, self.label = path, images, 0, 0.0, ""

    def __call__(self, label: str, images: int) -> None:
        self.done, self.label = self.done + images, label or self.label
        if time.monotonic() - self.written > _PROGRESS_SECONDS:
            self.write()

    def write(self) -> None:
        self.written = time.monotonic()
        write_json(self.path, {"images": self.images, "done": min(self.done, self.images), "label": self.label})


def _end_with_parent() -> None:
    """Exit when the worker dies, which closes the worker's end of the pipe at standard input."""
    try:
        os.read(0, 1)
    finally:
        os._exit(3)


if __name__ == "__main__":
    sys.exit(main())
