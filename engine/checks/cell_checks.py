"""Indicators of one cell: from its records, and from what running it again on a few images gave."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...adapters.result import allowed_radius
from ...adapters.running.judge import KINDS, RULES, UNCHANGED
from ...adapters.words import radius_text
from ..cell import is_iterated
from ..statistics.paired_tests import mcnemar
from ..statistics.verdict import SIGNIFICANT, TOO_MANY_VIOLATIONS
from ..store.outcomes import Clean, Outcome
from .cross_checks import subject_of
from .indicators import LOST_FAIL, LOST_WARN, SHRINK_FAIL, SHRINK_WARN, Check, State, make_check, pick

_NO_EVIDENCE = ("nan-logits", "no-gradient", "no-signal", "unstable", "model-changed", "crashed", "no-start")
RUN_IT = "run `davylamp check FOLDER --run`"


def record_checks(outcome: Outcome, clean: Clean | None) -> Iterator[Check]:
    """What the records of a cell say alone: "older-rules", "bounds", "returns", "evidence" and so on."""
    yield _older_rules(outcome)
    yield _bounds(outcome)
    yield _returns(outcome)
    yield _evidence(outcome)
    yield _zero_epsilon(outcome, clean)
    yield _eight_bit(outcome)


def run_checks(outcome: Outcome, probes: Mapping[str, Any] | None) -> Iterator[Check]:
    """What `probe_cell` found: "more-steps", "unbounded", "random-noise", "active-test"; without it all unknown."""
    about = subject_of(outcome.cell), outcome.cell.key
    for name, judge in _JUDGES.items():
        if outcome.cell.surrogate:
            yield make_check(name, "unknown", *about, "the attack ran on a surrogate: check it there, white-box")
            continue
        if outcome.cell.fitted_on is not None:
            yield make_check(name, "unknown", *about, "the attack has learned once, from other images")
            continue
        if outcome.cell.search.kind == "worst-case":
            yield make_check(name, "unknown", *about, "a worst case over several attacks: run each of them in full")
            continue
        probe = None if probes is None else probes[name]
        if probes is None or probe is None:
            yield make_check(name, "unknown", *about, "not run yet", advice=RUN_IT)
        elif probe["reason"]:
            yield make_check(name, "unknown", *about, probe["reason"])
        else:
            state, detail, places = judge(outcome, probes, probe)
            names = [str(outcome.columns["image"][place]) for place in places]
            yield make_check(name, state, *about, detail, images=names)


def _older_rules(outcome: Outcome) -> Check:
    """What an earlier version counted as fooled or robust, and this one would not; as far as the record shows it."""
    about, columns = (subject_of(outcome.cell), outcome.cell.key), outcome.columns
    if outcome.cell.rules >= RULES:
        return make_check("older-rules", "pass", *about, f"judged by rules {outcome.cell.rules}, which are today's")
    attacked, success = columns["attacked"], columns["success"]
    robust, still = columns["robust"], columns["linf"] <= UNCHANGED
    gave_up = robust & still & (outcome.cell.row.failure == "last" or still[attacked].all())
    doubts = {
        "fooled by images that break a rule": success & attacked & (columns["violations"] != ""),
        "fooled by the clean image": success & attacked & still,
        "robust although the model's logits are not finite": robust & outcome.silent,
        "robust although nothing was changed": gave_up,
    }
    parts = [f"{int(images.sum())} {what}" for what, images in doubts.items() if images.any()]
    doubtful = np.logical_or.reduce(list(doubts.values()))
    detail = f"judged by rules {outcome.cell.rules} of today's {RULES} (davylamp 0.1.0), " + (
        f"{int(doubtful.sum())} of {int(attacked.sum())} images wrongly: {', '.join(parts)}; "
        if parts
        else "no image visibly wrong; "
    )
    detail += "edited code and attributes of the model, and changes that an attack made to it, were not noticed then"
    return make_check(
        "older-rules", "fail" if parts else "warn", *about, detail, images=pick(_names(outcome), doubtful)
    )


def _bounds(outcome: Outcome) -> Check:
    columns, threat_model = outcome.columns, outcome.cell.threat_model
    broken = _kinds(outcome, "nan", "out-of-bounds", "out-of-ball") & columns["attacked"]
    counts = {kind: int((_kinds(outcome, kind) & columns["attacked"]).sum()) for kind in ("nan", "out-of-bounds")}
    counts["out-of-ball"] = int((_kinds(outcome, "out-of-ball") & columns["attacked"]).sum())
    if threat_model.norm != "unrestricted":
        outside = columns["success"] & ~(columns["distance"] <= allowed_radius(threat_model))
        counts["counted as a success outside"] = int(outside.sum())
        broken = broken | outside
    summary = ", ".join(f"{number} {kind}" for kind, number in counts.items() if number)
    detail = f"{int(broken.sum())} of {_attacked(outcome)} images" + (f": {summary}" if summary else "")
    return _shared("bounds", outcome, broken, detail)


def _returns(outcome: Outcome) -> Check:
    columns = outcome.columns
    black, unchanged = (
        _kinds(outcome, "black") & columns["attacked"],
        _kinds(outcome, "unchanged") & columns["attacked"],
    )
    others = {kind: _kinds(outcome, kind) & columns["attacked"] for kind in ("barely-moved", "another-image")}
    detail = f"{int(black.sum())} black and {int(unchanged.sum())} clean of {_attacked(outcome)} images"
    detail += "".join(f", {int(flags.sum())} {kind}" for kind, flags in others.items() if flags.any())
    clean = columns["attacked"] & (columns["linf"] == 0) & (columns["violations"] == "")
    if not (black | unchanged).any() and clean.any() and clean.sum() == columns["attacked"].sum():
        detail = f"all {_attacked(outcome)} images came back clean, which this attack may do where it fails"
        return make_check(
            "returns", "warn", subject_of(outcome.cell), outcome.cell.key, detail, images=pick(_names(outcome), clean)
        )
    return _shared("returns", outcome, np.logical_or.reduce([black, unchanged, *others.values()]), detail)


def _evidence(outcome: Outcome) -> Check:
    """Images about which the run says nothing although what came back is inside the rules."""
    flags = {kind: _kinds(outcome, kind) & outcome.columns["attacked"] for kind in _NO_EVIDENCE}
    summary = ", ".join(f"{int(images.sum())} {kind} ({KINDS[kind]})" for kind, images in flags.items() if images.any())
    broken = np.logical_or.reduce(list(flags.values()))
    return _shared(
        "evidence",
        outcome,
        broken,
        f"{int(broken.sum())} of {_attacked(outcome)} images" + (summary and f": {summary}"),
    )


def _zero_epsilon(outcome: Outcome, clean: Clean | None) -> Check:
    about, columns = (subject_of(outcome.cell), outcome.cell.key), outcome.columns
    if clean is None:
        return make_check("zero-epsilon", "unknown", *about, "no clean predictions are stored", advice="evaluate again")
    moved = columns["predicted"] != clean.columns["predicted"]
    if not outcome.cell.pixels and not outcome.is_random:  # a random model is judged by other draws than clean
        moved = moved | ((columns["linf"] == 0) & (columns["adv_predicted"] != columns["predicted"]))
    detail = f"{int(moved.sum())} of {len(moved)} images predicted differently without a change"
    return make_check(
        "zero-epsilon", "fail" if moved.any() else "pass", *about, detail, images=pick(_names(outcome), moved)
    )


def _eight_bit(outcome: Outcome) -> Check:
    success, about = outcome.columns["success"], (subject_of(outcome.cell), outcome.cell.key)
    if outcome.cell.pixels:
        return make_check("eight-bit", "pass", *about, "success is counted on 8 bits")
    if not success.any():
        return make_check("eight-bit", "unknown", *about, "the attack has no success to lose")
    lost = success & ~outcome.columns["success_8bit"]
    share = lost.sum() / success.sum()
    state: State = "fail" if share > LOST_FAIL else "warn" if share > LOST_WARN else "pass"
    detail = f"{int(lost.sum())} of {int(success.sum())} successes are gone after rounding to 8 bits"
    return make_check("eight-bit", state, *about, detail, images=pick(_names(outcome), lost))


def _judge_steps(_: Outcome, probes: Mapping[str, Any], probe: Mapping[str, Any]) -> tuple[State, str, list[int]]:
    base = set(probes["base"]["fooled"])
    new = [place for place in probe["fooled"] if place not in base]
    count, times = len(probes["images"]), probe["times"]
    if probes["epsilon"] is None and base:
        both = [place for place in probe["fooled"] if place in base]
        ratio = float(np.median([_ratio(probe, probes["base"], place) for place in both])) if both else 1.0
        state: State = "fail" if ratio < SHRINK_FAIL else "warn" if ratio < SHRINK_WARN or new else "pass"
        return state, f"with {times} times the steps the median distance is {ratio:.2f} of what it was", new
    share = mcnemar([True] * len(new), [False] * len(new)) if new else 1.0
    state = "fail" if share < SIGNIFICANT or len(new) > count / 2 else "warn" if new else "pass"
    return state, f"{times} times the steps fool {len(new)} more of {count} images ({len(base)} before)", new


def _radius_of(outcome: Outcome, probe: Mapping[str, Any]) -> str:
    return radius_text(outcome.cell.threat_model.norm, probe["radius"])


def _judge_unbounded(
    outcome: Outcome, probes: Mapping[str, Any], probe: Mapping[str, Any]
) -> tuple[State, str, list[int]]:
    left = [place for place in probes["images"] if place not in probe["fooled"]]
    state: State = "pass" if not left else "fail" if is_iterated(outcome.cell) else "warn"
    radius = "without a radius" if probe["radius"] is None else f"within {_radius_of(outcome, probe)}"
    count = len(probes["images"])
    return state, f"{count - len(left)} of {count} images are fooled {radius}", left


def _judge_noise(outcome: Outcome, probes: Mapping[str, Any], probe: Mapping[str, Any]) -> tuple[State, str, list[int]]:
    base, images = set(probes["base"]["fooled"]), probes["images"]
    noise = set(probe["fooled"])
    only = sorted(noise - base)
    p = mcnemar([i in noise for i in images], [i in base for i in images])
    white = outcome.cell.knowledge == "white-box"
    state: State = "pass" if not only else "fail" if white or p < SIGNIFICANT else "warn"
    drawn = f"{probe['draws']} random changes of size {_radius_of(outcome, probe)}"
    detail = f"{drawn} fool {len(noise)} of {len(images)} images, "
    return state, detail + f"{len(only)} of which the attack does not fool", only


def _judge_active(outcome: Outcome, _: Mapping[str, Any], probe: Mapping[str, Any]) -> tuple[State, str, list[int]]:
    missed = [place for place in probe["planted"] if place not in probe["found"]]
    count = len(probe["planted"])
    state: State = "pass" if not missed else "warn" if len(missed) == 1 and count > 1 else "fail"
    if state == "fail" and not is_iterated(outcome.cell):
        state = "warn"  # one step or a budget of queries may be too little for it: the paper tests optimisers
    detail = f"found {count - len(missed)} of {count} planted examples within {_radius_of(outcome, probe)}"
    if probe["easy"]:
        detail += f"; {len(probe['easy'])} more left out, which random noise finds"
    return state, detail, missed


_JUDGES = {
    "more-steps": _judge_steps,
    "unbounded": _judge_unbounded,
    "random-noise": _judge_noise,
    "active-test": _judge_active,
}


def _ratio(probe: Mapping[str, Any], base: Mapping[str, Any], place: int) -> float:
    after, before = (each["distances"][each["fooled"].index(place)] for each in (probe, base))
    return after / before if before else 1.0


def _shared(name: str, outcome: Outcome, broken: np.ndarray, detail: str) -> Check:
    """Any broken image warns, more than a tenth fail, as in `compare`."""
    share = broken.sum() / max(1, _attacked(outcome))
    state: State = "fail" if share > TOO_MANY_VIOLATIONS else "warn" if broken.any() else "pass"
    return make_check(
        name, state, subject_of(outcome.cell), outcome.cell.key, detail, images=pick(_names(outcome), broken)
    )


def _kinds(outcome: Outcome, *kinds: str) -> np.ndarray:
    texts, asked = outcome.columns["violations"].tolist(), set(kinds)
    flags = {text: bool(asked & set(str(text).split())) for text in set(texts)}
    if not any(flags.values()):
        return np.zeros(len(texts), bool)
    return np.fromiter(map(flags.__getitem__, texts), bool, len(texts))


def _attacked(outcome: Outcome) -> int:
    return int(outcome.columns["attacked"].sum())


def _names(outcome: Outcome) -> np.ndarray:
    return outcome.columns["image"]
