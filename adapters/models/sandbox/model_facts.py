"""What a worker says of its model when it has loaded it, and what our end believes of that."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from ...user_code_guard import one_line
from ..classifier import Classifier
from ..identity.digest import ModelIdentity
from ..output_format import OUTPUTS, OutputFormat

_OF_CLASSIFIER: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("num_classes", "stated_classes", "resize", "crop", "channels"), (int, type(None))),
    **dict.fromkeys(("detects", "random", "handed_over_training", "all_named"), (bool,)),
    **dict.fromkeys(("class_names", "loading_notes"), (list,)),
    "interpolation": (str,),
}
_FACTS: Mapping[str, tuple[type, ...]] = {
    **_OF_CLASSIFIER,
    "digest": (str,),
    "reasons": (list,),
    "dtype": (str,),
    "in_torch": (bool,),
    "answers": (dict,),
}
_TEXTS = ("reasons", "loading_notes", "class_names")
_DTYPES = ("float32", "float64", "float16", "bfloat16")


def describe_model(classifier: Classifier, identity: ModelIdentity) -> dict[str, Any]:
    """What is known of a model as JSON types, but for `in_torch`."""
    facts = {name: getattr(classifier, name) for name in _OF_CLASSIFIER}
    facts |= {"class_names": list(classifier.class_names), "loading_notes": list(classifier.loading_notes)}
    facts |= {"digest": identity.digest, "reasons": list(identity.reasons)}
    facts["dtype"] = str(classifier.anchor.dtype).removeprefix("torch.")
    return {**facts, "answers": describe_answers(classifier.answers)}


def parse_model_metadata(facts: Any) -> dict[str, Any]:
    """What a worker says of its model, of the types and sizes that it must be of.

    Raises:
        ValueError: if it is not.
    """
    right = isinstance(facts, dict) and facts.keys() == _FACTS.keys()
    right = right and all(type(facts[name]) in kinds for name, kinds in _FACTS.items())
    right = right and all(0 < value < 1 << 24 for value in facts.values() if type(value) is int)
    right = right and facts["interpolation"] in ("bilinear", "bicubic") and facts["dtype"] in _DTYPES
    if not (right and is_digest(facts["digest"])):
        raise ValueError("expected what is known of the model")
    check_answers(facts["answers"])
    return {**facts, **{name: tuple(one_line(line) for line in facts[name]) for name in _TEXTS}}


def is_digest(text: str) -> bool:
    """Whether a text is one of `ModelIdentity`."""
    return len(text) == 20 and all(c in "0123456789abcdef" for c in text)


def describe_answers(answers: OutputFormat) -> dict[str, Any]:
    """What a model gives, as far as is known by now, as JSON types."""
    flags = {"gradients": answers.gradients, "has_other_class": answers.has_other_class}
    return {"kind": answers.kind, "outputs": answers.outputs, "stated": answers.stated, **flags}


def check_answers(described: Any) -> dict[str, Any]:
    """What `describe_answers` gives, checked.

    Raises:
        ValueError: if it is something else.
    """
    words, flags = ("kind", "outputs", "stated"), ("gradients", "has_other_class")
    right = isinstance(described, dict) and described.keys() == {*words, *flags}
    right = right and all(described[word] in (None, *OUTPUTS) for word in words)
    if not (right and all(type(described[flag]) is bool for flag in flags)):
        raise ValueError("expected what the model gives")
    return described


class RemoteOutputFormat(OutputFormat):
    """How the answers of a model in a worker are read there.

    Args:
        described: what `describe_answers` gave.
    """

    def __init__(self, described: Mapping[str, Any]):
        super().__init__(nn.Identity(), None, gradients=True)
        self._spare = False
        self.update_from(described)

    def update_from(self, described: Mapping[str, Any]) -> None:
        """Take over what the worker says by now."""
        self.kind, self.outputs, self.stated = (described[word] for word in ("kind", "outputs", "stated"))
        self._spare = described["has_other_class"]
        self._differentiable = self._differentiable and described["gradients"]

    @property
    def has_other_class(self) -> bool:
        """As in the worker."""
        return self._spare

    @property
    def expected_classes(self) -> int:
        """How many classes there are at least (0: not known yet), for the worker to know."""
        return self._least
