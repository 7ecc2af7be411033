"""Comparisons of two implementations of an attack, used by `compare`, `check`, the report and JSON output.

A comparison consists of the implementations of one attack on one model and its images, under one threat model, with
equal parameters. Its pairs form one family: their p-values are corrected for the number of pairs in the comparison.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import torch

from ...adapters import AttackResult, Implementation, canonical_attack
from ...adapters.catalogue.lookup import accepts_parameter
from ...adapters.catalogue.step_reach import max_step_distance
from ...adapters.display_text import format_threat_model
from ...adapters.running.judge import perturbation_norm, projection_of
from ...errors import AttackFailed
from ..attack_run import AttackRun
from ..finding import Finding, State
from ..statistics.verdict import SAME_IMAGE, PairedOutcomes, PairVerdict, Verdict, decide_verdict, not_compared
from ..store.results import Results, RunResult

SEVERITY: Mapping[Verdict, State] = {  # the worst last
    "identical": "pass",
    "equivalent": "pass",
    "no difference found": "unknown",
    "undecided": "unknown",
    "weaker": "warn",
    "broken": "fail",
}
_OLDER = ("l0", "l1", "l2", "linf")  # for records without a projection
_CRASHED = AttackFailed.__name__  # start of the reason if the library is at fault


class AttackResultSummary(NamedTuple):
    """An implementation in a comparison: its results, or the reason why there are none.

    Args:
        name: name of the implementation.
        side: its outcomes by image. None without results.
        changes: columns "success", "adv_predicted", "linf" and "projection" (older records: all distances), (n,) each.
            Equal values identify equal perturbations of an image.
        is_minimum: whether it is a minimum-norm attack, so that distances are compared.
        reason: why there are no results.
        crashed: whether the library is at fault for the missing results.
        cell: its run, if it comes from a results folder.
        outcome: the results of that run.
        images: its examples, if available.
    """

    name: str
    side: PairedOutcomes | None = None
    changes: Mapping[str, np.ndarray] = {}
    is_minimum: bool = False
    reason: str = ""
    crashed: bool = False
    cell: AttackRun | None = None
    outcome: RunResult | None = None
    images: torch.Tensor | None = None


@dataclass(frozen=True)
class PairComparison:
    """The result of comparing two implementations on paired outcomes.

    Args:
        a: name of the first.
        b: name of the second.
        judgement: verdict with its test.
        max_difference: largest pixel difference over the attacked images; NaN if the images are not available.
        agreeing: rate of compared images on which both succeed or both fail.
        unshared: parameters that only one of the two supports.
        contenders: both implementations.
    """

    a: str
    b: str
    judgement: PairVerdict
    max_difference: float = math.nan
    agreeing: float = math.nan
    unshared: tuple[str, ...] = ()
    contenders: tuple[AttackResultSummary, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict."""
        return self.judgement.verdict

    @property
    def weaker(self) -> str:
        """Name of the weaker or the broken implementation; empty if neither."""
        return self.judgement.weaker

    @property
    def cell(self) -> AttackRun:
        """The run of the first implementation. The second has the same model, threat model and seed."""
        cell = self.contenders[0].cell
        if cell is None:
            raise TypeError("expected a pair from a results folder, got one without a folder")
        return cell

    @property
    def outcomes(self) -> tuple[RunResult, ...]:
        """The finished runs of both implementations, if they come from a folder."""
        return tuple(each.outcome for each in self.contenders if each.outcome is not None)

    @property
    def state(self) -> State:
        """Severity of the verdict."""
        return SEVERITY[self.verdict]

    @property
    def finding(self) -> Finding:
        """The comparison as a finding, for a pair from a results folder."""
        judgement, names = self.judgement, f"{self.a} and {self.b}"
        where = f"{names} ({format_threat_model(self.cell.threat_model)}) on {self.cell.subject.name}"
        images: tuple[str, ...] = ()
        if len(self.outcomes) == 2:
            a, b = (each.columns for each in self.outcomes)
            images = tuple(map(str, a["image"][a["success"] != b["success"]]))
        detail = self.sentence if self.weaker else f"{where}: {judgement.text}."
        shown = ("images", "left_out", "only_a", "only_b", "p", "level", "queries")
        numbers = {name: getattr(judgement, name) for name in shown}
        name = self.verdict.replace(" ", "-")
        return Finding(name, "", self.state, where, self.cell.key, images, detail, numbers=numbers)

    @property
    def sentence(self) -> str:
        """Sentence with the weaker implementation, the conditions of the comparison, and the numbers of the test."""
        judgement = self.judgement
        where = f"{self.cell.subject.name}, {format_threat_model(self.cell.threat_model)}"
        if judgement.verdict == "broken":
            sides = [each.side for each in self.contenders if each.side is not None]
            complaint = judgement.reason or "; ".join(side.invalid_summary for side in sides if side.is_broken)
            return f"{self.weaker} is broken ({complaint}) on {where}."
        better = self.b if self.weaker == self.a else self.a
        costs = f", {judgement.costs}" if judgement.costs else ""
        costs += self.causes
        if judgement.is_apart:
            most, least = sorted((judgement.only_a, judgement.only_b), reverse=True)
            numbers = (
                f"{most} images are fooled only by the other implementation, {least} only by the weaker one, "
                "exact McNemar test"
            )
        else:
            numbers = "larger distances if both succeed, Wilcoxon test"
        numbers += f" p = {judgement.p:.2g}, below {judgement.correction}"
        return f"{self.weaker} is weaker than {better} on {where}{costs}: {numbers}; n = {judgement.images}."

    @property
    def causes(self) -> str:
        """Known differences of settings, each after "; ": unshared parameters, and steps shorter than the radius."""
        return (f"; only one implementation supports {', '.join(self.unshared)}" if self.unshared else "") + self._reach

    @property
    def _reach(self) -> str:
        """How far the steps of the weaker implementation reach, if that is less than the radius."""
        cell = next((each.cell for each in self.contenders if each.name == self.weaker), None)
        if cell is None or cell.search.kind:
            return ""
        reach = max_step_distance(cell.row, cell.threat_model, cell.parameters)
        return f"; its steps reach {reach:.2g} of the radius" if reach is not None and reach < 1 - 1e-6 else ""


def judge_comparison(contenders: Sequence[AttackResultSummary]) -> tuple[PairComparison, ...]:
    """Compare every two implementations, corrected for the number of pairs in which both have results."""
    having = sum(each.side is not None for each in contenders)
    return tuple(judge_two(a, b, having * (having - 1) // 2) for a, b in combinations(contenders, 2))


def judge_two(a: AttackResultSummary, b: AttackResultSummary, pairs: int = 1) -> PairComparison:
    """Compare two implementations image by image, with the significance level for one of `pairs` pairs."""
    names = [set() if each.cell is None else set(each.cell.parameters) for each in (a, b)]
    about: dict[str, Any] = {"unshared": tuple(sorted(names[0] ^ names[1])), "contenders": (a, b)}
    if a.side is None or b.side is None:
        failed = [each for each in (a, b) if each.side is None]
        broken = " and ".join(each.name for each in failed if each.crashed)
        why = "; ".join(f"{each.name}: {each.reason}" for each in failed)
        return PairComparison(a.name, b.name, not_compared(broken, why), **about)
    judgement = decide_verdict(
        a.side,
        b.side,
        minimum_norm=a.is_minimum and b.is_minimum,
        same=_same_changes(a.changes, b.changes),
        moved=(a.changes["linf"] > 0) | (b.changes["linf"] > 0),
        pairs=pairs,
    )
    paired = a.side.attacked & b.side.attacked & ~a.side.invalid_by() & ~b.side.invalid_by()
    agreeing = float((a.side.success == b.side.success)[paired].mean()) if paired.any() else math.nan
    gap = math.nan
    if a.images is not None and b.images is not None:
        gaps = perturbation_norm(a.images - b.images, "linf").cpu().numpy()[a.side.attacked]
        gap = float(gaps.max()) if len(gaps) else 0.0
    return PairComparison(a.name, b.name, judgement, gap, agreeing, **about)


def contender_of_result(row: Implementation, result: AttackResult) -> AttackResultSummary:
    """Convert a result of `run_attack` to the summary that a comparison of implementations uses.

    Args:
        row: implementation that ran.
        result: its result.
    """
    numbers = {"success": result.success, "adv_predicted": result.adv_logits.argmax(1)}
    numbers |= {"linf": result.distances.linf, "projection": projection_of(result.adv_inputs)}
    taken = (result.attacked, result.success, result.distance, result.success_8bit, result.forwards + result.backwards)
    attacked, success, distance, success_8bit, queries = (values.cpu().numpy() for values in taken)
    return AttackResultSummary(
        row.name,
        PairedOutcomes(row.name, attacked, success, distance, result.violations, success_8bit, queries),
        {name: values.cpu().numpy() for name, values in numbers.items()},
        canonical_attack(row).kind == "minimum-norm",
        images=result.adv_inputs,
    )


def paired_outcomes(outcome: RunResult) -> PairedOutcomes:
    """Convert a finished run to paired outcomes. Results that 0.1.0 wrongly counted as success are invalid."""
    columns, results = outcome.columns, outcome.results
    queries = columns["forwards"] + columns["backwards"] if "forwards" in columns else None
    success, distance = columns["success"], columns["distance"]
    kinds = results.invalid_reasons()
    return PairedOutcomes(
        outcome.cell.title, results.attacked, success, distance, kinds, columns.get("success_8bit"), queries
    )


def verdicts_of(outcomes: Results) -> list[PairComparison]:
    """Compare every two comparable implementations in a folder."""
    return [pair for contenders in comparisons_of(outcomes) for pair in judge_comparison(contenders)]


def comparisons_of(outcomes: Results) -> list[list[AttackResultSummary]]:
    """Return the comparisons of at least two implementations in a folder. Of equal runs, the latest is used.

    Two runs are comparable if every parameter that both implementations support is equal.
    """
    alike: dict[tuple[Any, ...], list[_Cell]] = {}
    done = [_Cell(outcome.cell, outcome) for outcome in outcomes.done]
    for each in [*done, *(_Cell(cell, None, reason) for cell, reason in outcomes.failed)]:
        alike.setdefault(_conditions(each.cell), []).append(each)
    comparisons: list[list[AttackResultSummary]] = []
    for group in alike.values():
        latest = sorted(group, key=lambda each: each.written, reverse=True)
        bundles: list[list[_Cell]] = []
        for each in sorted(latest, key=lambda one: -len(one.cell.parameters)):
            fitting = (b for b in bundles if all(_are_comparable(other.cell, each.cell) for other in b))
            if (bundle := next(fitting, None)) is None:
                bundles.append([each])
            else:
                bundle.append(each)
        places = {id(each): place for place, each in enumerate(group)}
        ordered = (sorted(bundle, key=lambda one: places[id(one)]) for bundle in bundles if len(bundle) > 1)
        comparisons += [[_contender_of_cell(*each) for each in bundle] for bundle in ordered]
    return comparisons


class _Cell(NamedTuple):
    cell: AttackRun
    outcome: RunResult | None
    reason: str = ""

    @property
    def written(self) -> str:
        return "" if self.outcome is None else str(self.outcome.meta.get("written", ""))


def _contender_of_cell(cell: AttackRun, outcome: RunResult | None, reason: str) -> AttackResultSummary:
    if outcome is None:
        return AttackResultSummary(cell.title, reason=reason, crashed=reason.startswith(_CRASHED), cell=cell)
    return AttackResultSummary(
        cell.title, paired_outcomes(outcome), outcome.columns, outcome.is_minimum, cell=cell, outcome=outcome
    )


def _same_changes(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return whether both implementations changed an image equally, up to float32 rounding, (n,) bool; see `RULE`."""
    known = "projection" in a and "projection" in b
    same = [a[name] == b[name] for name in ("success", "adv_predicted")]
    for name in ("linf", "projection") if known else _OLDER:
        one, two = (each[name].astype(float) for each in (a, b))
        same.append(np.isclose(one, two, 0.0 if known else SAME_IMAGE, 2 * SAME_IMAGE, equal_nan=True))
    return np.logical_and.reduce(same)


def _conditions(cell: AttackRun) -> tuple[Any, ...]:
    """Return the settings, other than parameters, that must be equal for runs to be compared."""
    rules = cell.as_planned.threat_model
    return cell.subject.key, cell.attack_title, cell.surrogate, rules, cell.target, cell.seed, cell.pixels


def _are_comparable(a: AttackRun, b: AttackRun) -> bool:
    """Whether two runs have different implementations, and equal values of all parameters that both support."""
    for name in {*a.parameters, *b.parameters}:
        if name in a.parameters and name in b.parameters:
            if a.parameters[name] != b.parameters[name]:
                return False
        elif accepts_parameter((b if name in a.parameters else a).row, name):
            return False
    return a.attack != b.attack
