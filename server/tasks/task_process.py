"""The process that runs a task.

The process and the worker that started it communicate by files in the folder of the task:

- `job.json`: the worker describes the task;
- `keys.json`: this process lists the runs of the task, as soon as they are planned;
- `given`: the worker reports that it has copied existing runs into `results/`. This process waits for the file;
- `progress.json`: this process reports the number of finished images;
- `outcome.json`: this process reports how the task ended.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...adapters.models.sandbox.bubblewrap import machine_bytes
from ...engine.store.atomic_files import replace_file
from ...errors import DavylampError, InvalidInput

_GIVEN_SECONDS = 300.0
_PROGRESS_SECONDS = 0.3


def main() -> int:
    """Run the task in the folder that the command line names. Return the exit code, which is 1 if an error occurred."""
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
    """Limit the memory of this process to four fifths of the machine's memory.

    If the task uses a GPU, there is no limit, because the GPU's driver reserves more memory than the machine has.
    """
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    if sys.platform.startswith("linux") and all(each["device"] == "cpu" for each in job["configs"]):
        import resource

        size = machine_bytes() * 4 // 5
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def write_json(path: Path, document: Any) -> None:
    """Write a JSON file. Other processes see either the old or the complete new content."""
    replace_file(path, lambda draft: draft.write_text(json.dumps(document), encoding="utf-8"))


def run_task(folder: Path) -> dict[str, Any]:
    """Run the evaluations that `job.json` describes.

    Returns:
        Content of `outcome.json`: the number of finished runs ("done"), the number of reused runs ("kept"), the reason
        for each failed run ("failed"), and the reason for each omitted model, attack or data set ("left_out").

    Raises:
        DavylampError: If no data set can be evaluated.
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
    """Build the plans of a task.

    Returns:
        A plan for each data set that can be evaluated, with the index of its config. Then the reason for each other
        data set, by name of the data.
    """
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
    """Return the content of `keys.json`, by key of the run.

    For each run, it contains the index of the data set, the indices of the attacks, and the keys of the records on
    which the run depends.
    """
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
    """Counts the finished images of a task, and writes the number to `progress.json` from time to time."""

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
    """End this process when the worker dies, which closes the pipe at standard input."""
    try:
        os.read(0, 1)
    finally:
        os._exit(3)


if __name__ == "__main__":
    sys.exit(main())
