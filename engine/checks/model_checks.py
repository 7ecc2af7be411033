"""Failure indicators of a model, from the measurements of `probe_model` on its clean images."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import scipy

from ..finding import Finding
from ..statistics.verdict import SIGNIFICANT
from .indicators import FEWEST, GRADIENT_FAIL, MADE, SAME_BATCH, SAME_PASS, Judged, find, judged, state_of

_EVALUATE = "evaluate it again into a new folder, or run `davylamp check FOLDER --probe`"
_DECLARED = judged("pass", "the model is declared random, so each example is judged on repeated samples")
_TINY = 1e-12


def model_checks(model: str, probes: Mapping[str, Any] | None, names: Sequence[str], refused: str) -> Iterator[Finding]:
    """Yield the findings of the failure indicators of a model.

    Args:
        model: name of the model.
        probes: result of `probe_model`. None if the model was not probed.
        names: names of the images, in the order of the indices in `probes`.
        refused: reason why davylamp could not evaluate the model; "" if it could.
    """
    for name, judge in _JUDGES.items():
        probe = (probes or {}).get(name)
        if name == "transport" and probe is None:
            continue  # local models have no transport
        if refused and name == "logits" and "got probabilities" in refused:
            judgement = Judged("fail", refused)
        elif refused:
            judgement = Judged("unknown", f"the model could not be used: {refused}")
        elif probe is None:
            judgement = Judged("unknown", "not probed yet", advice=_EVALUATE)
        elif probe.get("error"):
            judgement = Judged("fail", f"the model raised: {probe['error']}")
        else:
            judgement = judge(probe)
            judgement = judgement._replace(images=[names[place] for place in judgement.images])
        yield find(name, judgement, model)


def _judge_mode(probe: Mapping[str, Any]) -> Judged:
    stuck, norms = probe["training"], probe["batch_statistics"]
    parts = [f"in training mode after eval(): {', '.join(stuck[:3])}"] if stuck else []
    parts += [f"batch norm without running statistics: {', '.join(norms[:3])}"] if norms else []
    if parts:
        return Judged("fail", "; ".join(parts))
    handed = "passed in training mode, switched to evaluation mode" if probe["handed_over_training"] else "unchanged"
    return Judged("pass", f"every layer is in evaluation mode ({handed})")


def _judge_deterministic(probe: Mapping[str, Any]) -> Judged:
    if probe.get("random"):
        return _DECLARED
    relative, changed = probe["difference"] / max(probe["scale"], _TINY), probe["changed"]
    unsteady = probe.get("unsteady", False)
    sentence = (
        "the same {count} images in two calls: logits differ by up to {relative:.1e} of the largest logit, "
        "{changed} predictions change"
    )
    sentence += "; the model's server returns different outputs for the same fixed images" if unsteady else ""
    state = state_of(relative > SAME_PASS or changed or unsteady, False)
    return judged(state, sentence, changed, relative=relative, changed=len(changed), count=probe["images"])


def _judge_zero(probe: Mapping[str, Any]) -> Judged:
    if probe.get("random"):
        return _DECLARED
    relative, changed = probe["difference"] / max(probe["scale"], _TINY), probe["changed"]
    sentence = (
        "{count} images one by one and in one batch: logits differ by up to {relative:.1e} of the largest logit, "
        "{changed} predictions change"
    )
    state = state_of(changed, relative > SAME_BATCH)
    return judged(state, sentence, changed, relative=relative, changed=len(changed), count=probe["images"])


def _judge_logits(probe: Mapping[str, Any]) -> Judged:
    if probe.get("gives") == "labels":
        return Judged("unknown", "-: the model returns labels only, no scores")
    spread = {"low": probe["low"], "high": probe["high"]}
    if probe["log_probabilities"]:
        given = "probabilities, whose logarithm is passed to attacks" if "gives" in probe else "log-probabilities"
        return judged(
            "warn", given + ": outputs from {low:.3g} to {high:.3g}, each row's exponentials sum to 1", **spread
        )
    if probe["unit_interval"]:
        return judged("warn", "outputs from {low:.3g} to {high:.3g}: bounded by 0 and 1, as after a sigmoid", **spread)
    return judged("pass", "outputs from {low:.3g} to {high:.3g}", **spread)


def _judge_gradients(probe: Mapping[str, Any]) -> Judged:
    if probe.get("absent"):
        return Judged("unknown", "a remote model has no gradients: only gradient-free attacks can be run on it")
    zero, bad, count = probe["zero"], probe["not_finite"], probe["images"]
    if probe.get("none"):
        return Judged("unknown", f"-: the model returns {probe['none']}; attacks that need gradients are not run on it")
    if probe["unavailable"]:
        return Judged("fail", f"no gradient reaches the input: {probe['unavailable']}", range(count))
    if probe["constant"]:
        return Judged("fail", f"the same gradient for {count} different images", range(count))
    places = sorted({*zero, *bad})
    state = state_of(len(places) > GRADIENT_FAIL * count, places)
    sentence = "zero on {zero}, NaN or infinite on {not_finite} of {count} images"
    return judged(state, sentence, places, zero=len(zero), not_finite=len(bad), count=count)


def _judge_normalisation(probe: Mapping[str, Any]) -> Judged:
    tried, numbers = probe["tried"], {name: probe[name] for name in ("right", "classes")}
    numbers |= {"count": probe["images"], "confidence": probe["confidence"]}
    sentence = "{right} of {count} clean images correct"
    sentence += "" if probe["confidence"] is None else ", mean confidence {confidence:.2f}"
    if probe["images"] < FEWEST:
        return judged("unknown", sentence + ": too few images to decide", **numbers)
    better = {name: each for name, each in tried.items() if each.get("p", 1.0) * len(tried) < SIGNIFICANT}
    better = {name: each for name, each in better.items() if each["right"] > probe["right"]}
    if better:
        name = max(better, key=lambda each: better[each]["right"])
        numbers |= {"other": better[name]["right"], "p": better[name]["p"] * len(tried), "name": name}
        return judged("fail", sentence + "; {other} correct with {name} (p = {p:.2g})", **numbers)
    chance = scipy.stats.binomtest(probe["right"], probe["images"], 1 / probe["classes"], alternative="greater").pvalue
    if chance > SIGNIFICANT:
        sentence += ": not better than guessing one of {classes} classes (p = {p:.2g})"
        return judged("warn", sentence, p=chance, **numbers)
    others = [
        f"{each['corrected']} of {each['of']} errors corrected with {name}"
        if "corrected" in each
        else f"{each['right']} correct with {name}"
        for name, each in tried.items()
    ]
    sentence += "; {others}" if others else ": too few errors for a significant improvement"
    return judged("pass", sentence, others=", ".join(others), **numbers)


def _judge_transport(probe: Mapping[str, Any]) -> Judged:
    moved = "; ".join(
        f"{name} changes the outputs by {a:.2g}, a random change of the same size by {b:.2g}"
        for name, (a, b) in probe["moved"].items()
    )
    changes = [name for name, (by_it, by_other) in probe["moved"].items() if by_other > 0 and by_it <= MADE * by_other]
    if changes:
        return Judged("warn", f"images are changed on the way to the model ({', '.join(changes)}): {moved}")
    if blind := [name for name, (_, by_other) in probe["moved"].items() if by_other == 0]:
        return Judged("unknown", f"the outputs do not show whether images are changed ({', '.join(blind)}): {moved}")
    return Judged("pass", f"{probe['images']} images reach the model unchanged: {moved}")


_JUDGES: Mapping[str, Callable[[Mapping[str, Any]], Judged]] = {
    "eval-mode": _judge_mode,
    "deterministic": _judge_deterministic,
    "zero-epsilon": _judge_zero,
    "logits": _judge_logits,
    "gradients": _judge_gradients,
    "normalisation": _judge_normalisation,
    "transport": _judge_transport,
}
