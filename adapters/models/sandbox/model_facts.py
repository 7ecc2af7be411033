"""Metadata of a model. A worker sends them after it has loaded the model, and the parent process validates them."""

import re
from collections.abc import Mapping
from typing import Any

from torch import nn

from ...user_code_guard import one_line
from ..classifier import Classifier
from ..ensemble import is_float32_in_torch
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
    **{"digest": (str,), "reasons": (list,), "dtype": (str,), "in_torch": (bool,), "answers": (dict,)},
}
_TEXTS = ("reasons", "loading_notes", "class_names")
_DTYPES = ("float32", "float64", "float16", "bfloat16")
_DIGEST = re.compile(r"[0-9a-f]{20}")


def describe_model(classifier: Classifier, identity: ModelIdentity) -> dict[str, Any]:
    """Describe a model in JSON types."""
    facts = {name: getattr(classifier, name) for name in _OF_CLASSIFIER}
    facts |= {"class_names": list(classifier.class_names), "loading_notes": list(classifier.loading_notes)}
    facts |= {"digest": identity.digest, "reasons": list(identity.reasons), "in_torch": is_float32_in_torch(classifier)}
    facts["dtype"] = str(classifier.anchor.dtype).removeprefix("torch.")
    return {**facts, "answers": describe_answers(classifier.answers)}


def parse_model_metadata(facts: Any) -> dict[str, Any]:
    """Validate the types and sizes of metadata that a worker has sent.

    Args:
        facts: metadata as returned by `describe_model`.

    Returns:
        The metadata, in which "answers" is a `RemoteOutputFormat`.

    Raises:
        ValueError: if the metadata are invalid.
    """
    right = isinstance(facts, dict) and facts.keys() == _FACTS.keys()
    right = right and all(type(facts[name]) in kinds for name, kinds in _FACTS.items())
    right = right and all(0 < value < 1 << 24 for value in facts.values() if type(value) is int)
    right = right and facts["interpolation"] in ("bilinear", "bicubic") and facts["dtype"] in _DTYPES
    if not (right and _DIGEST.fullmatch(facts["digest"])):
        raise ValueError("the metadata of the model is incomplete or has invalid values")
    texts = {name: tuple(one_line(line) for line in facts[name]) for name in _TEXTS}
    return {**facts, **texts, "answers": RemoteOutputFormat(facts["answers"])}


def describe_answers(answers: OutputFormat) -> dict[str, Any]:
    """Describe the output format of a model in JSON types. Facts that are not known yet are None."""
    flags = {"gradients": answers.gradients, "has_other_class": answers.has_other_class}
    return {"kind": answers.kind, "outputs": answers.outputs, "stated": answers.stated, **flags}


class RemoteOutputFormat(OutputFormat):
    """Output format of a model that runs in a worker. The parent process has this copy of the worker's `OutputFormat`.

    Args:
        described: description of the format that the worker sent, see `describe_answers`.

    Raises:
        ValueError: if the description is invalid.
    """

    def __init__(self, described: Any):
        super().__init__(nn.Identity(), None, gradients=True)
        self._spare = False
        self.update_from(described)

    def update_from(self, described: Any) -> None:
        """Update the output format from the description that the model's process has sent.

        Raises:
            ValueError: if the description is invalid.
        """
        words, flags = ("kind", "outputs", "stated"), ("gradients", "has_other_class")
        right = isinstance(described, dict) and described.keys() == {*words, *flags}
        right = right and all(described[word] in (None, *OUTPUTS) for word in words)
        if not (right and all(type(described[flag]) is bool for flag in flags)):
            raise ValueError("the output format of the model has invalid values")
        self.kind, self.outputs, self.stated = (described[word] for word in words)
        self._spare = described["has_other_class"]
        self._differentiable = self._differentiable and described["gradients"]

    @property
    def has_other_class(self) -> bool:
        """Whether the last class of the worker's model stands for all labels that are not among the known classes."""
        return self._spare

    @property
    def expected_classes(self) -> int:
        """Minimum number of classes, which is sent to the worker. 0 if the number is not known yet."""
        return self._least
