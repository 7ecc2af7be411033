"""Rough estimates of the queries per image, from which the remaining time and the cost of a run are estimated."""

import math
from collections.abc import Mapping
from typing import Any

from ..adapters import Implementation, canonical_attack, library_defaults
from ..errors import DavylampError
from .attack_run import AttackRun

_WITHOUT_STEPS = {"white-box": 1, "score-based": 500, "decision-based": 4000}
_REPEATED = ("restarts", "binary_search_steps", "samples", "scales", "population", "trials")  # passes are per each
_PER_TARGET, _TARGETS = ("apgd-t", "fab-t"), 9  # attacks that run once for each target class, and their usual number


def expected_passes(row: Implementation, parameters: Mapping[str, Any], norm: str, eot: int = 1) -> float:
    """Estimate the forward and backward passes of an attack per image.

    The estimate uses the number of steps, or a typical number for the kind of attack if there are no steps.

    Args:
        row: the implementation.
        parameters: canonical parameters that the user chose. The library's defaults are used for others.
        norm: norm of the threat model.
        eot: number of samples of a random model in each query.
    """
    try:
        known = {**library_defaults(row, norm), **parameters}
    except (DavylampError, ImportError):  # a missing library is reported when it is run
        known = dict(parameters)
    knowledge = canonical_attack(row).knowledge
    steps = known.get("steps")
    steps = float(steps) if isinstance(steps, (int, float)) else _WITHOUT_STEPS.get(knowledge, 1)
    if isinstance(first := known.get("initial_evaluations"), int):  # HopSkipJump: first * sqrt(t) in step t
        steps = sum(min(first * math.sqrt(step), known.get("max_evaluations", math.inf)) for step in _counted(steps))
    passes = steps * (2 if knowledge == "white-box" else 1)
    for name in _REPEATED:
        passes *= known[name] if isinstance(known.get(name), int) else 1
    if row.attack in _PER_TARGET:
        passes *= max(known["candidates"] - 1 if isinstance(known.get("candidates"), int) else _TARGETS, 1)
    passes *= eot
    most = known.get("max_queries")
    return max(1.0, min(passes, most) if isinstance(most, (int, float)) else passes)


def _counted(steps: float) -> range:
    return range(1, min(int(steps), 10_000) + 1)


def is_guess(cell: AttackRun) -> bool:
    """Whether the estimate for a run is only a guess, as for black-box attacks without a query limit."""
    is_open = cell.knowledge in ("score-based", "decision-based") and not cell.parameters.get("max_queries")
    return is_open if cell.search.kind != "worst-case" else any(map(is_guess, cell.members))


def estimate_queries(cell: AttackRun) -> float:
    """Estimate the passes of a run per image. For a worst case, the estimate assumes that no attack fools an image."""
    if cell.search.kind == "worst-case":
        return sum(map(estimate_queries, cell.members))
    return expected_passes(cell.row, cell.parameters, cell.threat_model.norm, cell.eot) * cell.search.runs


def expected_work(plan: Any) -> dict[str, tuple[int, float]]:
    """Return the number of images and the expected passes per image for each run and each other task of a plan.

    The keys are the names under which executors report progress.

    Args:
        plan: the plan (`plan.plan.Plan`).
    """
    work: dict[str, tuple[int, float]] = {}

    def add(name: str, images: int, passes: float) -> None:
        before = work.get(name, (0, passes))
        work[name] = (before[0] + images, max(before[1], passes))

    for subject, _ in plan.subjects_here:
        add(f"clean predictions of {subject.model}", subject.images, 1.0)
    for cell in plan.runs_in_this_part:
        images = sum(len(cell.shard_slice(shard)) for shard in plan.shards(cell))
        add(cell.attack, images, estimate_queries(cell))
    for subject, cell in plan.transfers_here:
        add(f"transfer of {cell.attack}", subject.images, 1.0)
    return work
