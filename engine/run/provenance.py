"""Metadata of records: origin, machine and versions."""

import platform
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ... import __version__
from ...adapters import LIBRARIES
from ..attack_run import describe_attack
from ..store.other_records import describe_fit
from .task import TaskResult

_VERSIONS = ("torch", "torchvision", "timm", "numpy", "scipy", "pillow", "piq")


def run_metadata(outcome: TaskResult, *, preset: str = "", chosen: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the metadata of a record: spec, default settings, status, machine and versions."""
    task, fitted = outcome.task, outcome.fitted
    about = {"key": task.cell.key, "spec": task.cell.spec} if task.cell else {"key": task.subject.key}
    return {
        **about,
        **({"about": describe_attack(task.cell)} if task.cell else {}),
        "subject": task.subject.spec,
        "kind": task.kind,
        "status": "done" if outcome.table is not None else "failed",
        "reason": outcome.reason,
        "unmeasured": dict(outcome.unmeasured or {}),
        **({} if outcome.probes is None else {"probes": dict(outcome.probes)}),
        **({} if fitted is None else {"fit": describe_fit(fitted), "fit_seconds": fitted.seconds}),
        **({} if outcome.saturation is None else {"saturation": dict(outcome.saturation)}),
        **({"outputs": outcome.outputs} if outcome.outputs else {}),
        **({"class_names": list(outcome.class_names)} if outcome.class_names else {}),
        **({"output_note": outcome.output_note} if outcome.output_note else {}),
        "seconds": outcome.seconds,
        "attack_seconds": outcome.attack_seconds,
        "device": task.device,
        **({"gpu": outcome.gpu} if outcome.gpu else {}),
        **({"traffic": dict(outcome.traffic)} if outcome.traffic else {}),
        "python": platform.python_version(),
        "platform": platform.machine(),
        "versions": versions(),
        "preset": preset,
        "chosen": dict(chosen or {}),
        "written": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


@cache
def versions() -> dict[str, str]:
    """Return the versions of davylamp and of the installed libraries that affect the numbers."""
    installed = {"davylamp": __version__}
    distributions = {
        name for library in LIBRARIES.values() for name in (library.distribution, library.provider) if name
    }
    for name in (*_VERSIONS, *sorted(distributions)):
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed
