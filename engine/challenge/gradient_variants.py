"""Gradient variants of a defence: the same defended model with other gradients, for attackers who know the defence."""

from torch import nn

from ...adapters import Classifier
from ...adapters.models.defences.catalogue import ROWS
from ...adapters.models.defences.names import NamedDefence, is_defence, parse_defence, write_defence
from ...adapters.paths import is_file_name

BPDA, EXACT, ONE_STEP = "straight-through", "exact", "of one step"
OF_PROBABILITIES = "of the mean probability"


def split_original(model: str) -> tuple[str, tuple[str, ...]]:
    """Split a name "MODEL+DEFENCE+..." into the name of the undefended model and the names of its defences."""
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
        model: name of the defended model, MODEL+DEFENCE. Parts that are not defences of the catalogue, such as files,
            stay unchanged in the variants.

    Returns:
        How gradients pass through the defence, by the name of the variant. "straight-through" treats every defence as
        the identity (BPDA, Athalye et al. 2018). "exact" uses a library's differentiable version of the same defence.
    """
    original, parts = split_original(model)
    named = {model: ""} | {_join(original, [_with(part, None) for part in parts]): ""}
    for way in (BPDA, EXACT, ONE_STEP):
        changed = [_with(part, way) for part in parts]
        named.setdefault(_join(original, changed), way)
    return {name: way for name, way in named.items() if way}


def with_probability_mean(model: Classifier, name: str) -> Classifier:
    """Return a variant of a randomised model whose outputs are probabilities instead of logits.

    Attacks with EOT then average probabilities over the samples. A mean of logits can hide that most samples are
    fooled, if a few samples have large margins. A mean of probabilities is close to the rate of fooled samples.

    Args:
        model: the randomised classifier.
        name: name of the variant in the results folder.
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
    for known in defence.gradients:
        chosen = known if known == way else chosen
    return write_defence(NamedDefence(defence, parameters, chosen))
