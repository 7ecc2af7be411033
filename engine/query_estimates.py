"""Rough estimates of the queries per image, for the remaining time before any measurement."""

from collections.abc import Mapping
from typing import Any

from ..adapters import Implementation, canonical_attack, library_defaults
from ..errors import DavylampError
from .attack_run import AttackRun

_WITHOUT_STEPS = {"white-box": 1, "score-based": 500, "decision-based": 1000}


def expected_passes(row: Implementation, parameters: Mapping[str, Any], norm: str) -> float:
    """Estimate the forward and backward passes per image, from the steps or typical values of the attack's kind.

    Args:
        row: the implementation.
        parameters: canonical parameters that are given.
        norm: norm of the threat model.
    """
    try:
        known = {**library_defaults(row, norm), **parameters}
    except (DavylampError, ImportError):  # a missing library is reported when it is run
        known = dict(parameters)
    knowledge = canonical_attack(row).knowledge
    steps = known.get("steps")
    steps = float(steps) if isinstance(steps, (int, float)) else _WITHOUT_STEPS.get(knowledge, 1)
    passes = steps * (2 if knowledge == "white-box" else 1)
    for name in ("restarts", "binary_search_steps"):
        passes *= known[name] if isinstance(known.get(name), int) else 1
    most = known.get("max_queries")
    return max(1.0, min(passes, most) if isinstance(most, (int, float)) else passes)


def estimate_queries(cell: AttackRun) -> float:
    """Estimate the passes per image of a run. For a worst case, no image is assumed to be fooled."""
    if cell.search.kind == "worst-case":
        return sum(map(estimate_queries, cell.members))
    return expected_passes(cell.row, cell.parameters, cell.threat_model.norm) * cell.search.runs


def expected_work(plan: Any) -> dict[str, tuple[int, float]]:
    """Return the expected work of a plan by the names that executors report: number of images, and passes per image.

    Args:
        plan: see `plan.plan.Plan`.
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
