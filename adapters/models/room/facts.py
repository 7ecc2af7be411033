"""What a room says of its model when it has loaded it: of the types and sizes that it must be of."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from ...user_code import one_line
from ..answers import OUTPUTS, Answers

_FACTS: Mapping[str, tuple[type, ...]] = {
    "num_classes": (int, type(None)),
    "stated_classes": (int, type(None)),
    "resize": (int, type(None)),
    "crop": (int, type(None)),
    "channels": (int, type(None)),
    "interpolation": (str,),
    "detects": (bool,),
    "random": (bool,),
    "handed_over_training": (bool,),
    "digest": (str,),
    "all_named": (bool,),
    "in_torch": (bool,),
    "class_names": (list,),
    "reasons": (list,),
    "loading_notes": (list,),
    "dtype": (str,),
    "answers": (dict,),
}


def checked_facts(facts: Any) -> dict[str, Any]:
    """What a room says of its model, of the types that it must be of.

    Raises:
        ValueError: if it is not.
    """
    if not isinstance(facts, dict) or facts.keys() != _FACTS.keys():
        raise ValueError("expected what is known of the model")
    right = all(type(facts[name]) in kinds for name, kinds in _FACTS.items())
    numbers = [value for value in facts.values() if type(value) is int]
    right = right and all(0 < number < 1 << 24 for number in numbers)
    right = right and facts["interpolation"] in ("bilinear", "bicubic")
    right = right and facts["dtype"] in ("float32", "float64", "float16", "bfloat16")
    right = right and len(facts["digest"]) == 20 and all(c in "0123456789abcdef" for c in facts["digest"])
    if not right:
        raise ValueError("expected what is known of the model")
    check_answers(facts["answers"])
    texts = {
        name: tuple(one_line(line) for line in facts[name]) for name in ("reasons", "loading_notes", "class_names")
    }
    return {**facts, **texts}


def describe_answers(answers: Answers) -> dict[str, Any]:
    """What a model gives, as far as is known by now, for the other side of the wall."""
    flags = {"gradients": answers.gradients, "has_spare": answers.has_spare}
    return {"kind": answers.kind, "outputs": answers.outputs, "stated": answers.stated, **flags}


def check_answers(described: Any) -> dict[str, Any]:
    """What `describe_answers` gives, checked.

    Raises:
        ValueError: if it is something else.
    """
    words, flags = ("kind", "outputs", "stated"), ("gradients", "has_spare")
    if not isinstance(described, dict) or described.keys() != {*words, *flags}:
        raise ValueError("expected what the model gives")
    if not all(described[word] in (None, *OUTPUTS) for word in words) or not all(
        type(described[flag]) is bool for flag in flags
    ):
        raise ValueError("expected what the model gives")
    return described


class AnswersElsewhere(Answers):
    """How the answers of a model in a room are read there.

    Args:
        described: what `describe_answers` gave.
    """

    def __init__(self, described: Mapping[str, Any]):
        super().__init__(nn.Identity(), None, gradients=True)
        self._spare = False
        self.follow(described)

    def follow(self, described: Mapping[str, Any]) -> None:
        """Take over what the room says by now."""
        self.kind, self.outputs, self.stated = (described[word] for word in ("kind", "outputs", "stated"))
        self._spare = described["has_spare"]
        self._differentiable = self._differentiable and described["gradients"]

    @property
    def has_spare(self) -> bool:
        """As in the room."""
        return self._spare

    @property
    def expected_classes(self) -> int:
        """How many classes there are at least (0: not known yet), for the room to know."""
        return self._least
