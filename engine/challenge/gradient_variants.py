"""What an attacker who knows a defence attacks in its place: the same defence with other ways for gradients."""

from torch import nn

from ...adapters import Classifier
from ...adapters.models.defences.catalogue import ROWS
from ...adapters.models.defences.names import NamedDefence, is_defence, parse_defence
from ...adapters.models.defences.spec import Gradients
from ...adapters.paths import is_file_name

BPDA, EXACT = "straight-through", "exact"
OF_PROBABILITIES = "of the mean probability"


def split_original(model: str) -> tuple[str, tuple[str, ...]]:
    """The model without the defences behind its name, and their names from left to right, none of which it may have."""
    parts: list[str] = []
    while True:
        head, _, last = model.rpartition("+")
        if not (head and (is_defence(last) or is_file_name(last))):
            return model, tuple(parts)
        model, parts = head, [last, *parts]


def gradient_variants(model: str) -> dict[str, str]:
    """By name of a stand-in, how gradients pass it: each way that the defence of a model allows and its name does not.

    "straight-through": as if every part of the defence changed nothing (BPDA, Athalye et al. 2018). "exact": by the
    derivative of that library's version of the same transformation which has one.

    Args:
        model: MODEL+DEFENCE; parts that are no named defences stay as they are.
    """
    original, parts = split_original(model)
    named = {model: ""} | {_join(original, [_with(part, None) for part in parts]): ""}
    for way in (BPDA, EXACT):
        changed = [_with(part, way) for part in parts]
        named.setdefault(_join(original, changed), way)
    return {name: way for name, way in named.items() if way}


def with_probability_mean(model: Classifier, name: str) -> Classifier:
    """A random model that gives its probabilities as if they were logits, so that EOT takes the mean of those.

    The mean of logits lets a few draws of large margins hide that most draws are right; that of probabilities is close
    to the share of draws that are fooled. They are no logarithms, so that the cross-entropy is nearly linear in them.

    Args:
        model: a random classifier.
        name: what records call it.
    """
    sizes = {word: getattr(model, word) for word in ("resize", "crop", "interpolation")}
    twin = Classifier(nn.Sequential(model, nn.Softmax(1)), name=name, random=model.random, **sizes)
    twin.answers.kind = twin.answers.outputs = "logits"
    return twin


def _join(original: str, parts: list[str]) -> str:
    return "+".join([original, *parts])


def _with(part: str, way: Gradients | None) -> str:
    """A part of a model's name with its gradients passing in a way, if it can; written out in full."""
    if not is_defence(part):
        return part
    defence, parameters, chosen = parse_defence(part)
    if way == EXACT and EXACT not in defence.gradients:
        others = [row for row in ROWS if row.name == defence.name and row.random == defence.random]
        defence = next(
            (row for row in others if EXACT in row.gradients and set(parameters) <= set(row.params)), defence
        )
    if way is not None and way in defence.gradients:
        chosen = way
    return _text(NamedDefence(defence, parameters, chosen))


def _text(named: NamedDefence) -> str:
    settings = [f"{word}={value}" for word, value in named.parameters.items()]
    return f"{named.defence.full_name}:{','.join([*settings, f'gradients={named.gradients}'])}"
