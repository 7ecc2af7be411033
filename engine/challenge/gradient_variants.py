"""Gradient variants of a defence, for an attacker who knows the defence."""

from torch import nn

from ...adapters import Classifier
from ...adapters.models.defences.catalogue import ROWS
from ...adapters.models.defences.names import NamedDefence, is_defence, parse_defence, write_defence
from ...adapters.paths import is_file_name

BPDA, EXACT, ONE_STEP = "straight-through", "exact", "of one step"
OF_PROBABILITIES = "of the mean probability"


def split_original(model: str) -> tuple[str, tuple[str, ...]]:
    """Split a model name into the undefended model and the names of its defences, from left to right."""
    parts: list[str] = []
    while True:
        head, _, last = model.rpartition("+")
        if not (head and (is_defence(last) or is_file_name(last))):
            return model, tuple(parts)
        model, parts = head, [last, *parts]


def gradient_variants(model: str) -> dict[str, str]:
    """Return the model's other gradient variants: the name of each, and how gradients pass through it.

    "straight-through" treats every part of the defence as the identity (BPDA, Athalye et al. 2018). "exact" is the
    derivative of a library's differentiable version of the same transformation. "of one step" is the derivative of a
    purifier with a single step, because that of a long loop can vanish.

    Args:
        model: MODEL+DEFENCE; parts that are not named defences are unchanged.
    """
    original, parts = split_original(model)
    named = {model: ""} | {_join(original, [_with(part, None) for part in parts]): ""}
    for way in (BPDA, EXACT, ONE_STEP):
        changed = [_with(part, way) for part in parts]
        named.setdefault(_join(original, changed), way)
    return {name: way for name, way in named.items() if way}


def with_probability_mean(model: Classifier, name: str) -> Classifier:
    """Return a randomised model that outputs probabilities as logits, so that EOT averages probabilities.

    In a mean of logits, a few samples with large margins can hide that most samples are fooled. A mean of probabilities
    is close to the rate of fooled samples. Because the outputs are not logarithms, the cross-entropy is nearly linear
    in them.

    Args:
        model: randomised classifier.
        name: name in records.
    """
    sizes = {word: getattr(model, word) for word in ("resize", "crop", "interpolation")}
    twin = Classifier(nn.Sequential(model, nn.Softmax(1)), name=name, random=model.random, **sizes)
    twin.answers.kind = twin.answers.outputs = "logits"
    return twin


def _join(original: str, parts: list[str]) -> str:
    return "+".join([original, *parts])


def _with(part: str, way: str | None) -> str:
    """Write one part of a model name in full, with the given gradients if the defence supports them."""
    if not is_defence(part):
        return part
    defence, parameters, chosen = parse_defence(part)
    if way == EXACT and EXACT not in defence.gradients:
        others = [row for row in ROWS if row.name == defence.name and row.random == defence.random]
        defence = next(
            (row for row in others if EXACT in row.gradients and set(parameters) <= set(row.params)), defence
        )
    if way == ONE_STEP and defence.takes == "denoiser":
        parameters = {**parameters, "steps": 1}
    chosen = next((each for each in defence.gradients if each == way), chosen)
    return write_defence(NamedDefence(defence, parameters, chosen))
