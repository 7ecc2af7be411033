"""Failure indicators of one attack run, from its record and from its probes (short extra runs)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...adapters.display_text import format_radius, format_threat_model
from ...adapters.result import radius_with_tolerance
from ...adapters.running.judge import KINDS, RULES, UNCHANGED
from ..attack_run import AttackRun, is_iterated, why_not_probed
from ..finding import Finding
from ..statistics.paired_tests import mcnemar
from ..statistics.verdict import SIGNIFICANT, TOO_MANY_VIOLATIONS
from ..store.results import CleanResult, RunResult
from .indicators import LOST_FAIL, LOST_WARN, SHRINK_FAIL, SHRINK_WARN, Judged, find, judged, state_of
from .verdicts import paired_outcomes

_NO_EVIDENCE = ("nan-logits", "no-gradient", "no-signal", "unstable", "model-changed", "crashed", "no-start")
RUN_IT = "run `davylamp check FOLDER --probe`"


def find_in_cell(name: str, cell: AttackRun, judgement: Judged) -> Finding:
    """Build the finding of a failure indicator about a run."""
    return find(name, judgement, f"{cell.title} ({describe(cell)}) on {cell.subject.name}", cell.key)


def describe(cell: AttackRun) -> str:
    """Format the threat model and the seed of a run: "linf 4/255, seed 1"."""
    return format_threat_model(cell.threat_model, cell.target) + (f", seed {cell.seed}" if cell.seed else "")


def indicators_from_record(outcome: RunResult, clean: CleanResult | None) -> Iterator[Finding]:
    """Yield the findings of the failure indicators that need only the record of a run.

    `clean` are the clean predictions of the run's model. None if the folder has none.
    """
    kinds = _Kinds(outcome)
    yield find_in_cell("older-rules", outcome.cell, _older_rules(outcome))
    yield find_in_cell("bounds", outcome.cell, _bounds(outcome, kinds))
    yield find_in_cell("returns", outcome.cell, _returns(outcome, kinds))
    yield find_in_cell("evidence", outcome.cell, _evidence(outcome, kinds))
    yield find_in_cell("zero-epsilon", outcome.cell, _zero_epsilon(outcome, clean))
    yield find_in_cell("eight-bit", outcome.cell, _eight_bit(outcome))


def indicators_from_probes(outcome: RunResult, probes: Mapping[str, Any] | None) -> Iterator[Finding]:
    """Yield the findings of the failure indicators that need the probes of a run.

    Args:
        outcome: the run.
        probes: result of `probe_cell`. None if the run was not probed; all findings are then "unknown".
    """
    cell = outcome.cell
    why = why_not_probed(cell)
    for name, judge in _JUDGES.items():
        probe = None if probes is None else probes[name]
        if why:
            judgement = Judged("unknown", why)
        elif probes is None or probe is None:
            judgement = Judged("unknown", "not run yet", advice=RUN_IT)
        elif probe["reason"]:
            judgement = Judged("unknown", probe["reason"])
        else:
            judgement = judge(outcome, probes, probe)
            judgement = judgement._replace(images=outcome.columns["image"][list(judgement.images)])
        yield find_in_cell(name, cell, judgement)


class _Kinds:
    def __init__(self, outcome: RunResult):
        self.attacked, self.texts = outcome.results.attacked, paired_outcomes(outcome).violations
        self.known = {kind for kinds in set(self.texts) for kind in kinds}

    def __call__(self, kind: str) -> np.ndarray:
        """Return whether each image has an invalid reason, shape (n,), bool."""
        if kind not in self.known:
            return np.zeros(len(self.texts), bool)
        return self.attacked & np.fromiter((kind in kinds for kinds in self.texts), bool, len(self.texts))

    def counted(self, kinds: Sequence[str]) -> dict[str, int]:
        counts = {kind: int(self(kind).sum()) for kind in kinds}
        return {kind: count for kind, count in counts.items() if count}


def _older_rules(outcome: RunResult) -> Judged:
    """Judge a run of an earlier davylamp version by the number of images that the current rules judge differently."""
    if outcome.cell.rules >= RULES:
        return judged("pass", "evaluated with the current rules ({rules})", rules=outcome.cell.rules)
    columns, results = outcome.columns, outcome.results
    success, robust, still = columns["success"], columns["robust"], columns["linf"] <= UNCHANGED
    gave_up = robust & still & (outcome.cell.row.failure == "last" or still[results.attacked].all())
    doubts = {
        "fooled by an invalid example": success & results.violated,
        "fooled by the clean image": success & results.attacked & still,
        "robust although the model's logits are not finite": robust & outcome.non_finite,
        "robust although the image was returned unchanged": gave_up,
    }
    parts = [f"{int(images.sum())} {what}" for what, images in doubts.items() if images.any()]
    doubtful = np.logical_or.reduce(list(doubts.values()))
    sentence = "evaluated with rules {rules}, those of davylamp 0.1.0; the current rules are {today}; "
    sentence += (
        "the current rules judge {doubtful} of {attacked} images differently: {parts}; "
        if parts
        else "the current rules judge no image differently; "
    )
    sentence += (
        "the older rules did not detect edits of the model's code or attributes, or attacks that changed the model"
    )
    numbers = {"rules": outcome.cell.rules, "today": RULES, "parts": ", ".join(parts)}
    numbers |= {"doubtful": int(doubtful.sum()), "attacked": int(results.attacked.sum())}
    return judged("fail" if parts else "warn", sentence, columns["image"][doubtful], **numbers)


def _broken(outcome: RunResult, broken: np.ndarray, sentence: str, **numbers: Any) -> Judged:
    """Judge a number of invalid images: "warn" from one image on, "fail" above a tenth of the attacked images.

    `sentence` is a format string with the fields `broken`, `attacked` and the names of `numbers`.
    """
    attacked = int(outcome.results.attacked.sum())
    state = state_of(broken.sum() > TOO_MANY_VIOLATIONS * max(1, attacked), broken.any())
    numbers |= {"broken": int(broken.sum()), "attacked": attacked}
    return judged(state, sentence, outcome.columns["image"][broken], **numbers)


def _bounds(outcome: RunResult, kinds: _Kinds) -> Judged:
    columns, rules = outcome.columns, outcome.cell.threat_model
    names = ("nan", "out-of-bounds", "out-of-ball")
    broken, counts = np.logical_or.reduce([kinds(name) for name in names]), kinds.counted(names)
    if rules.norm != "unrestricted":
        outside = columns["success"] & ~(columns["distance"] <= radius_with_tolerance(rules))
        counts |= {"counted as a success outside the radius": int(outside.sum())} if outside.any() else {}
        broken = broken | outside
    summary = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    sentence = "{broken} of {attacked} images" + (": {summary}" if summary else "")
    return _broken(outcome, broken, sentence, summary=summary)


def _returns(outcome: RunResult, kinds: _Kinds) -> Judged:
    results = outcome.results
    black, unchanged = kinds("black"), kinds("unchanged")
    others = kinds.counted(("barely-moved", "another-image"))
    clean = results.attacked & ~results.violated & (outcome.columns["linf"] == 0)
    if not (black | unchanged).any() and clean.any() and clean.sum() == results.attacked.sum():
        sentence = "all {clean} images were returned unchanged, which this attack may do when it fails"
        return judged("warn", sentence, outcome.columns["image"][clean], clean=int(clean.sum()))
    more = "".join(f", {count} {kind}" for kind, count in others.items())
    numbers = {"black": int(black.sum()), "unchanged": int(unchanged.sum()), "more": more}
    broken = np.logical_or.reduce([black, unchanged, *map(kinds, others)])
    return _broken(outcome, broken, "{black} black and {unchanged} unchanged of {attacked} images{more}", **numbers)


def _evidence(outcome: RunResult, kinds: _Kinds) -> Judged:
    """Judge the number of images whose result says nothing about the model, although the example is a valid image."""
    counts = kinds.counted(_NO_EVIDENCE)
    summary = ", ".join(f"{count} {kind} ({KINDS[kind]})" for kind, count in counts.items())
    broken = np.logical_or.reduce([kinds(kind) for kind in _NO_EVIDENCE])
    sentence = "{broken} of {attacked} images" + (": {summary}" if summary else "")
    return _broken(outcome, broken, sentence, summary=summary)


def _zero_epsilon(outcome: RunResult, clean: CleanResult | None) -> Judged:
    columns = outcome.columns
    if clean is None:
        return Judged("unknown", "no clean predictions are stored", advice="evaluate again")
    moved = (columns["predicted"] != clean.columns["predicted"]) | outcome.differs_unchanged
    sentence = "{moved} of {count} images got a different prediction when the same image was predicted again"
    numbers: dict[str, Any] = {"moved": int(moved.sum()), "count": len(moved)}
    return judged(state_of(moved.any(), False), sentence, columns["image"][moved], **numbers)


def _eight_bit(outcome: RunResult) -> Judged:
    success = outcome.columns["success"]
    if outcome.cell.pixels:
        return Judged("pass", "success is counted on 8 bits")
    if not success.any():
        return Judged("unknown", "the attack fooled no image")
    lost = success & ~outcome.columns["success_8bit"]
    state = state_of(lost.sum() > LOST_FAIL * success.sum(), lost.sum() > LOST_WARN * success.sum())
    sentence = "{lost} of {fooled} successes are lost after rounding to 8 bits"
    return judged(state, sentence, outcome.columns["image"][lost], lost=int(lost.sum()), fooled=int(success.sum()))


def _judge_steps(_: RunResult, probes: Mapping[str, Any], probe: Mapping[str, Any]) -> Judged:
    base = probes["base"]["fooled"]
    new, both = ([place for place in probe["fooled"] if (place in base) == known] for known in (False, True))
    count, times = len(probes["images"]), probe["times"]
    if probes["epsilon"] is None and base:
        before, after = (dict(zip(each["fooled"], each["distances"], strict=True)) for each in (probes["base"], probe))
        ratios = [after[place] / before[place] if before[place] else 1.0 for place in both]
        ratio = float(np.median(ratios)) if both else 1.0
        sentence = "with {times} times the steps, the median distance is {ratio:.2f} times the original distance"
        return judged(
            state_of(ratio < SHRINK_FAIL, ratio < SHRINK_WARN or new), sentence, new, times=times, ratio=ratio
        )
    p = mcnemar([True] * len(new), [False] * len(new))
    sentence = "with {times} times the steps, the attack fools {new} more of {count} images ({before} before)"
    numbers = {"times": times, "new": len(new), "count": count, "before": len(base), "p": p}
    return judged(state_of(p < SIGNIFICANT or len(new) > count / 2, new), sentence, new, **numbers)


def _judge_unbounded(outcome: RunResult, probes: Mapping[str, Any], probe: Mapping[str, Any]) -> Judged:
    left = [place for place in probes["images"] if place not in probe["fooled"]]
    radius = "without a radius" if probe["radius"] is None else f"within {_radius(outcome, probe)}"
    numbers = {"fooled": len(probes["images"]) - len(left), "count": len(probes["images"]), "radius": radius}
    state = state_of(left and is_iterated(outcome.cell), left)
    return judged(state, "{fooled} of {count} images are fooled {radius}", left, **numbers)


def _judge_noise(outcome: RunResult, probes: Mapping[str, Any], probe: Mapping[str, Any]) -> Judged:
    base, noise, images = set(probes["base"]["fooled"]), set(probe["fooled"]), probes["images"]
    only = sorted(noise - base)
    p = mcnemar([i in noise for i in images], [i in base for i in images])
    state = state_of(only and (outcome.cell.knowledge == "white-box" or p < SIGNIFICANT), only)
    sentence = "{draws} random perturbations of size {radius} fool {noise} of {count} images, "
    sentence += "of which the attack did not fool {only}"
    numbers = {"draws": probe["draws"], "radius": _radius(outcome, probe), "noise": len(noise), "count": len(images)}
    return judged(state, sentence, only, only=len(only), p=p, **numbers)


def _judge_active(outcome: RunResult, _: Mapping[str, Any], probe: Mapping[str, Any]) -> Judged:
    missed = [place for place in probe["planted"] if place not in probe["found"]]
    count, easy = len(probe["planted"]), len(probe["easy"])
    # A single step or a query budget may not suffice: the paper tests optimisers.
    state = state_of(missed and (len(missed) > 1 or count == 1) and is_iterated(outcome.cell), missed)
    sentence = "found {found} of {count} planted examples within {radius}"
    sentence += "; {easy} more excluded because random noise finds them" if easy else ""
    numbers = {"found": count - len(missed), "count": count, "easy": easy, "radius": _radius(outcome, probe)}
    return judged(state, sentence, missed, **numbers)


def _radius(outcome: RunResult, probe: Mapping[str, Any]) -> str:
    return format_radius(outcome.cell.threat_model.norm, probe["radius"])


_JUDGES: Mapping[str, Callable[[RunResult, Mapping[str, Any], Mapping[str, Any]], Judged]] = {
    "more-steps": _judge_steps,
    "unbounded": _judge_unbounded,
    "random-noise": _judge_noise,
    "active-test": _judge_active,
}
