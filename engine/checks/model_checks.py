"""Indicators of a model, from what `probe_model` found on its clean images."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import scipy

from ..statistics.verdict import SIGNIFICANT
from .indicators import FEWEST, GRADIENT_FAIL, SAME_BATCH, SAME_PASS, Check, State, make_check

_EVALUATE = "evaluate it again into a new folder, or run `davylamp check FOLDER --run`"


class _Found(NamedTuple):
    """A state with its numbers and the places of the images concerned."""

    state: State
    detail: str
    places: Sequence[int] = ()


def model_checks(model: str, probes: Mapping[str, Any] | None, names: Sequence[str], refused: str) -> Iterator[Check]:
    """The checks of a model.

    Args:
        model: its name.
        probes: what `probe_model` gave; None: it was not run.
        names: of the images that the probes count by place.
        refused: why the model could not be used on the clean images; "" if it could.
    """
    for name, judge in _JUDGES.items():
        if refused:
            found = _Found("unknown", f"the model could not be used: {refused}")
            if name == "logits" and "got probabilities" in refused:
                found = _Found("fail", refused)
            yield make_check(name, found.state, model, "", found.detail)
        elif probes is None or name not in probes:
            yield make_check(name, "unknown", model, "", "not probed yet", advice=_EVALUATE)
        elif probes[name].get("error"):
            yield make_check(name, "fail", model, "", f"the model raised: {probes[name]['error']}")
        else:
            found = judge(probes[name])
            images = [names[place] for place in found.places]
            yield make_check(name, found.state, model, "", found.detail, images=images)


def _judge_mode(found: Mapping[str, Any]) -> _Found:
    stuck, own = found["training"], found["batch_statistics"]
    if stuck or own:
        parts = [f"in training mode although told not to be: {', '.join(stuck[:3])}"] if stuck else []
        parts += [f"batch norm without running statistics: {', '.join(own[:3])}"] if own else []
        return _Found("fail", "; ".join(parts))
    handed = "handed over in training mode, put in evaluation mode" if found["handed_over_training"] else "as it came"
    return _Found("pass", f"every layer is in evaluation mode ({handed})")


def _judge_deterministic(found: Mapping[str, Any]) -> _Found:
    relative = found["difference"] / max(found["scale"], 1e-12)
    state: State = "fail" if relative > SAME_PASS or found["changed"] else "pass"
    detail = f"the same {found['images']} images twice: logits differ by up to {relative:.1e} of the largest, "
    return _Found(state, detail + f"{len(found['changed'])} predictions change", found["changed"])


def _judge_zero(found: Mapping[str, Any]) -> _Found:
    relative = found["difference"] / max(found["scale"], 1e-12)
    state: State = "fail" if found["changed"] else "warn" if relative > SAME_BATCH else "pass"
    detail = f"{found['images']} images one by one and together: logits differ by up to {relative:.1e} of the largest, "
    return _Found(state, detail + f"{len(found['changed'])} predictions change", found["changed"])


def _judge_logits(found: Mapping[str, Any]) -> _Found:
    spread = f"outputs from {found['low']:.3g} to {found['high']:.3g}"
    if found["log_probabilities"]:
        return _Found("warn", f"log-probabilities: {spread}, each row's exponentials sum to 1")
    if found["unit_interval"]:
        return _Found("warn", f"{spread}: bounded by 0 and 1, as after a sigmoid")
    return _Found("pass", spread)


def _judge_gradients(found: Mapping[str, Any]) -> _Found:
    zero, bad, count = found["zero"], found["not_finite"], found["images"]
    if found["unavailable"]:
        return _Found("fail", f"no gradient reaches the input: {found['unavailable']}", range(count))
    if found["constant"]:
        return _Found("fail", f"the same gradient for {count} different images", range(count))
    places = sorted({*zero, *bad})
    state: State = "fail" if len(places) > GRADIENT_FAIL * count else "warn" if places else "pass"
    return _Found(state, f"zero on {len(zero)}, NaN or infinite on {len(bad)} of {count} images", places)


def _judge_normalisation(found: Mapping[str, Any]) -> _Found:
    right, count, classes = found["right"], found["images"], found["classes"]
    detail = f"{right} of {count} clean images right, mean confidence {found['confidence']:.2f}"
    if count < FEWEST:
        return _Found("unknown", f"{detail}: too few images to tell")
    tried = found["tried"]
    better = {name: own for name, own in tried.items() if own["p"] * len(tried) < SIGNIFICANT and own["right"] > right}
    if better:
        name = max(better, key=lambda each: better[each]["right"])
        own = better[name]
        return _Found("fail", f"{detail}; {own['right']} right with {name} (p = {own['p'] * len(tried):.2g})")
    chance = scipy.stats.binomtest(right, count, 1 / classes, alternative="greater").pvalue
    if chance > SIGNIFICANT:
        return _Found("warn", f"{detail}: not better than guessing one of {classes} classes (p = {chance:.2g})")
    others = ", ".join(f"{own['right']} with {name}" for name, own in tried.items())
    return _Found("pass", f"{detail}; {others}" if tried else f"{detail}: too few wrong for another one to be better")


_JUDGES: Mapping[str, Callable[[Mapping[str, Any]], _Found]] = {
    "eval-mode": _judge_mode,
    "deterministic": _judge_deterministic,
    "zero-epsilon": _judge_zero,
    "logits": _judge_logits,
    "gradients": _judge_gradients,
    "normalisation": _judge_normalisation,
}
