"""Indicators of a model, from what `probe_model` found on its clean images."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import scipy

from ..statistics.verdict import SIGNIFICANT
from .indicators import FEWEST, GRADIENT_FAIL, MADE, SAME_BATCH, SAME_PASS, Check, State, make_check

_EVALUATE = "evaluate it again into a new folder, or run `davylamp check FOLDER --run`"


class _Judged(NamedTuple):
    """A state with its numbers and the places of the images concerned."""

    state: State
    detail: str
    places: Sequence[int] = ()


_DECLARED = _Judged("pass", "it draws random numbers and says so: every example is judged by repeated draws")


def model_checks(model: str, probes: Mapping[str, Any] | None, names: Sequence[str], refused: str) -> Iterator[Check]:
    """The checks of a model.

    Args:
        model: its name.
        probes: what `probe_model` gave; None: it was not run.
        names: of the images that the probes count by place.
        refused: why the model could not be used on the clean images; "" if it could.
    """
    for name, judge in _JUDGES.items():
        if name == "transport" and name not in (probes or {}):
            continue  # of a model in this process nothing is on its way
        if refused:
            judged = _Judged("unknown", f"the model could not be used: {refused}")
            if name == "logits" and "got probabilities" in refused:
                judged = _Judged("fail", refused)
            yield make_check(name, judged.state, model, "", judged.detail)
        elif probes is None or name not in probes:
            yield make_check(name, "unknown", model, "", "not probed yet", advice=_EVALUATE)
        elif probes[name].get("error"):
            yield make_check(name, "fail", model, "", f"the model raised: {probes[name]['error']}")
        else:
            judged = judge(probes[name])
            images = [names[place] for place in judged.places]
            yield make_check(name, judged.state, model, "", judged.detail, images=images)


def _judge_mode(probe: Mapping[str, Any]) -> _Judged:
    stuck, norms = probe["training"], probe["batch_statistics"]
    if stuck or norms:
        parts = [f"in training mode although told not to be: {', '.join(stuck[:3])}"] if stuck else []
        parts += [f"batch norm without running statistics: {', '.join(norms[:3])}"] if norms else []
        return _Judged("fail", "; ".join(parts))
    handed = "handed over in training mode, put in evaluation mode" if probe["handed_over_training"] else "as it came"
    return _Judged("pass", f"every layer is in evaluation mode ({handed})")


def _judge_deterministic(probe: Mapping[str, Any]) -> _Judged:
    if probe.get("random"):
        return _DECLARED
    relative = probe["difference"] / max(probe["scale"], 1e-12)
    unsteady = probe.get("unsteady", False)
    state: State = "fail" if relative > SAME_PASS or probe["changed"] or unsteady else "pass"
    detail = f"the same {probe['images']} images twice: logits differ by up to {relative:.1e} of the largest, "
    detail += f"{len(probe['changed'])} predictions change"
    detail += "; its server answers differently about the fixed images of its identity" if unsteady else ""
    return _Judged(state, detail, probe["changed"])


def _judge_zero(probe: Mapping[str, Any]) -> _Judged:
    if probe.get("random"):
        return _DECLARED
    relative = probe["difference"] / max(probe["scale"], 1e-12)
    state: State = "fail" if probe["changed"] else "warn" if relative > SAME_BATCH else "pass"
    detail = f"{probe['images']} images one by one and together: logits differ by up to {relative:.1e} of the largest, "
    return _Judged(state, detail + f"{len(probe['changed'])} predictions change", probe["changed"])


def _judge_logits(probe: Mapping[str, Any]) -> _Judged:
    if probe.get("gives") == "labels":
        return _Judged("unknown", "-: the model gives labels only, no scores")
    spread = f"outputs from {probe['low']:.3g} to {probe['high']:.3g}"
    if probe["log_probabilities"]:
        given = "probabilities, of which attacks get the logarithm" if "gives" in probe else "log-probabilities"
        return _Judged("warn", f"{given}: {spread}, each row's exponentials sum to 1")
    if probe["unit_interval"]:
        return _Judged("warn", f"{spread}: bounded by 0 and 1, as after a sigmoid")
    return _Judged("pass", spread)


def _judge_gradients(probe: Mapping[str, Any]) -> _Judged:
    if probe.get("absent"):
        return _Judged("unknown", "a remote model gives none: only attacks that need none can be run on it")
    zero, bad, count = probe["zero"], probe["not_finite"], probe["images"]
    if probe.get("none"):
        return _Judged("unknown", f"-: the model gives {probe['none']}; attacks that need gradients are not run on it")
    if probe["unavailable"]:
        return _Judged("fail", f"no gradient reaches the input: {probe['unavailable']}", range(count))
    if probe["constant"]:
        return _Judged("fail", f"the same gradient for {count} different images", range(count))
    places = sorted({*zero, *bad})
    state: State = "fail" if len(places) > GRADIENT_FAIL * count else "warn" if places else "pass"
    return _Judged(state, f"zero on {len(zero)}, NaN or infinite on {len(bad)} of {count} images", places)


def _judge_normalisation(probe: Mapping[str, Any]) -> _Judged:
    right, count, classes = probe["right"], probe["images"], probe["classes"]
    sure = "" if probe["confidence"] is None else f", mean confidence {probe['confidence']:.2f}"
    detail = f"{right} of {count} clean images right{sure}"
    if count < FEWEST:
        return _Judged("unknown", f"{detail}: too few images to tell")
    tried = probe["tried"]
    better = {
        name: result
        for name, result in tried.items()
        if result.get("p", 1.0) * len(tried) < SIGNIFICANT and result["right"] > right
    }
    if better:
        name = max(better, key=lambda each: better[each]["right"])
        result = better[name]
        return _Judged("fail", f"{detail}; {result['right']} right with {name} (p = {result['p'] * len(tried):.2g})")
    chance = scipy.stats.binomtest(right, count, 1 / classes, alternative="greater").pvalue
    if chance > SIGNIFICANT:
        return _Judged("warn", f"{detail}: not better than guessing one of {classes} classes (p = {chance:.2g})")
    others = ", ".join(
        f"{result['corrected']} of {result['of']} wrong ones with {name}"
        if "corrected" in result
        else f"{result['right']} with {name}"
        for name, result in tried.items()
    )
    return _Judged("pass", f"{detail}; {others}" if tried else f"{detail}: too few wrong for another one to be better")


def _judge_transport(probe: Mapping[str, Any]) -> _Judged:
    changes = [name for name, (by_it, by_other) in probe["moved"].items() if by_other > 0 and by_it <= MADE * by_other]
    moved = "; ".join(
        f"{name} moves answers by {a:.2g}, its counterpart by {b:.2g}" for name, (a, b) in probe["moved"].items()
    )
    if changes:
        return _Judged("warn", f"images are changed on their way ({', '.join(changes)}): {moved}")
    blind = [name for name, (_, by_other) in probe["moved"].items() if by_other == 0]
    if blind:
        return _Judged("unknown", f"answers are too coarse to tell ({', '.join(blind)}): {moved}")
    return _Judged("pass", f"{probe['images']} images reach the model as they are: {moved}")


_JUDGES: Mapping[str, Callable[[Mapping[str, Any]], _Judged]] = {
    "eval-mode": _judge_mode,
    "deterministic": _judge_deterministic,
    "zero-epsilon": _judge_zero,
    "logits": _judge_logits,
    "gradients": _judge_gradients,
    "normalisation": _judge_normalisation,
    "transport": _judge_transport,
}
