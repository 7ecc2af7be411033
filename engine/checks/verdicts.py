"""Comparisons of two implementations of an attack, used by `compare`, `check`, the report and JSON output.

A comparison consists of the implementations of one attack on one model and its images, under one threat model, with
equal parameters. Every two implementations of a comparison form a pair. The significance level of a pair is corrected
for the number of pairs in the comparison.
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
    """Results of one implementation in a comparison, or the reason why there are no results.

    Args:
        name: name of the implementation.
        side: outcomes of the images. None without results.
        changes: columns that identify the perturbation of each image, (n,) each: "success", "adv_predicted", "linf" and
            "projection". Records of earlier versions have all distances instead of "projection".
        is_minimum: whether the implementation is a minimum-norm attack. If both implementations of a pair are,
            distances are compared.
        reason: reason why there are no results; otherwise "".
        crashed: whether there are no results because the library crashed.
        cell: the run, if it comes from a results folder; otherwise None.
        outcome: results of the run, if it comes from a results folder; otherwise None.
        images: the examples. None if they are not available.
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
    """Comparison of two implementations, called the first and the second, image by image.

    Args:
        a: name of the first implementation.
        b: name of the second implementation.
        judgement: verdict with the numbers of its test.
        max_difference: largest difference of a pixel between the two examples, over the attacked images; NaN if the
            examples are not available.
        agreeing: rate of compared images on which both implementations succeed or both fail.
        unshared: names of parameters that only one of the two implementations supports.
        contenders: the results of the two implementations.
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
        """Name of the weaker or the broken implementation; empty if the verdict is neither."""
        return self.judgement.weaker

    @property
    def cell(self) -> AttackRun:
        """The run of the first implementation. The second implementation has the same model, threat model and seed.

        Raises:
            TypeError: if the comparison was not read from a results folder.
        """
        cell = self.contenders[0].cell
        if cell is None:
            raise TypeError("only comparisons that were read from a results folder have a run; this comparison was not")
        return cell

    @property
    def outcomes(self) -> tuple[RunResult, ...]:
        """The finished runs of the two implementations. Empty if the comparison was not read from a results folder."""
        return tuple(each.outcome for each in self.contenders if each.outcome is not None)

    @property
    def state(self) -> State:
        """Severity of the verdict."""
        return SEVERITY[self.verdict]

    @property
    def finding(self) -> Finding:
        """The comparison as a finding. Only for comparisons that were read from a results folder."""
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
        """A sentence with the weaker implementation, the model and threat model, and the numbers of the test."""
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
            numbers = "Wilcoxon test of the distances where both succeed,"
        numbers += f" p = {judgement.p:.2g}, below {judgement.correction}"
        return f"{self.weaker} is weaker than {better} on {where}{costs}: {numbers}; n = {judgement.images}."

    @property
    def causes(self) -> str:
        """Differences of settings that may explain the verdict, each after "; "; "" if none is known.

        These are parameters that only one implementation supports, and steps that are together shorter than the radius.
        """
        return (f"; only one implementation supports {', '.join(self.unshared)}" if self.unshared else "") + self._reach

    @property
    def _reach(self) -> str:
        """How far the steps of the weaker implementation reach, as text.

        "" if they reach the radius or this is unknown.
        """
        cell = next((each.cell for each in self.contenders if each.name == self.weaker), None)
        if cell is None or cell.search.kind:
            return ""
        reach = max_step_distance(cell.row, cell.threat_model, cell.parameters)
        return f"; its steps together reach {reach:.2g} of the radius" if reach is not None and reach < 1 - 1e-6 else ""


def judge_comparison(contenders: Sequence[AttackResultSummary]) -> tuple[PairComparison, ...]:
    """Compare every two implementations. The significance level is corrected for the number of pairs with results."""
    having = sum(each.side is not None for each in contenders)
    return tuple(judge_two(a, b, having * (having - 1) // 2) for a, b in combinations(contenders, 2))


def judge_two(a: AttackResultSummary, b: AttackResultSummary, pairs: int = 1) -> PairComparison:
    """Compare two implementations image by image. The significance level is corrected for `pairs` pairs."""
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
    """Convert a result of `run_attack` to an `AttackResultSummary`. `row` is the implementation that ran."""
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
    """Convert a finished run to `PairedOutcomes`.

    Results that davylamp 0.1.0 wrongly counted as success are invalid.
    """
    columns, results = outcome.columns, outcome.results
    queries = columns["forwards"] + columns["backwards"] if "forwards" in columns else None
    success, distance = columns["success"], columns["distance"]
    kinds = results.invalid_reasons()
    return PairedOutcomes(
        outcome.cell.title, results.attacked, success, distance, kinds, columns.get("success_8bit"), queries
    )


def verdicts_of(outcomes: Results) -> list[PairComparison]:
    """Compare every two comparable implementations in a results folder."""
    return [pair for contenders in comparisons_of(outcomes) for pair in judge_comparison(contenders)]


def comparisons_of(outcomes: Results) -> list[list[AttackResultSummary]]:
    """Group the runs of a results folder into comparisons of at least two implementations.

    Two runs are comparable if every parameter that both implementations support has the same value. If an
    implementation has several such runs, the latest one is used.
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
    """Return whether two implementations changed each image equally, up to float32 rounding, (n,) bool (see `RULE`)."""
    known = "projection" in a and "projection" in b
    same = [a[name] == b[name] for name in ("success", "adv_predicted")]
    for name in ("linf", "projection") if known else _OLDER:
        one, two = (each[name].astype(float) for each in (a, b))
        same.append(np.isclose(one, two, 0.0 if known else SAME_IMAGE, 2 * SAME_IMAGE, equal_nan=True))
    return np.logical_and.reduce(same)


def _conditions(cell: AttackRun) -> tuple[Any, ...]:
    """Return the settings, other than parameters, that must be equal so that two runs are compared."""
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
