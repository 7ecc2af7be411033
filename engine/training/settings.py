"""Settings of a training: method, threat model, and every parameter with its range."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ...adapters.attack import Parameter
from ...adapters.parameters import check_parameter, parse_parameter
from ...adapters.threat_model import ThreatModel
from ...errors import InvalidInput, UnknownName
from .inner_maximisation import STARTS

_MANY = 10**9
_CHOICES = {"start": STARTS, "optimiser": ("sgd", "adam"), "schedule": ("constant", "cosine", "cyclic")}
NORMS = ("linf", "l2")
WORDS: Mapping[str, Parameter] = {
    "epochs": Parameter(int, 1, _MANY, "passes over the training images; distillation uses twice as many"),
    "batch_size": Parameter(int, 1, _MANY, "images per optimiser step"),
    "learning_rate": Parameter(float, 1e-12, 1e6, "peak learning rate"),
    "optimiser": Parameter(str, 0, 0, "sgd (momentum 0.9) or adam"),
    "schedule": Parameter(str, 0, 0, "learning rate schedule: constant, cosine (down to 0) or cyclic (up and down)"),
    "weight_decay": Parameter(float, 0, 1, "weight decay"),
    "steps": Parameter(int, 1, _MANY, "ascent steps for each batch"),
    "step_size": Parameter(float, 1e-12, 1e6, "step size, for pixels in [0, 1]"),
    "start": Parameter(str, 0, 0, "uniform (in the ball), gaussian (0.001) or none"),
    "clean_share": Parameter(
        float, 0, 1, "weight of the loss on clean images; adversarial images have 1 minus this weight"
    ),
    "beta": Parameter(float, 0, 1e6, "weight of the difference between clean and adversarial outputs"),
    "gamma": Parameter(float, 1e-12, 1, "norm of the change of each layer's weights, relative to the weights' norm"),
    "replays": Parameter(int, 1, 1000, "optimiser steps on each batch"),
    "std": Parameter(float, 1e-12, 10, "standard deviation of the noise, pixels in [0, 1]"),
    "temperature": Parameter(float, 1e-6, 1e6, "divisor of the logits during training"),
}
LOOP: Mapping[str, Any] = {
    "epochs": 10,
    "batch_size": 64,
    "learning_rate": 0.01,
    "optimiser": "sgd",
    "schedule": "cosine",
    "weight_decay": 5e-4,
}


@dataclass(frozen=True)
class TrainingSettings:
    """Complete settings of a training, which `make_settings` builds.

    Args:
        method: name of the method, from `METHODS`.
        norm: norm of the training, "linf" or "l2".
        epsilon: radius of the training. If the method has no radius, it is only the radius of the measurements for the
            model card.
        values: all parameters of the training, by name.
        seed: random seed.
        mixed_precision: whether to compute the losses in bfloat16 where possible (autocast).
        fresh: whether the training starts from random weights. False starts from the weights of the model.
    """

    method: str
    norm: str
    epsilon: float
    values: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    mixed_precision: bool = False
    fresh: bool = False

    def __post_init__(self) -> None:
        if self.norm not in NORMS:
            raise UnknownName("norm of a training", self.norm, NORMS)
        ThreatModel(self.norm, self.epsilon)  # type: ignore[arg-type] - it says what is wrong with a radius
        if not 0 <= self.seed < 2**32:
            raise InvalidInput(f"expected 0 <= seed < 2**32, got {self.seed}")

    def __getitem__(self, word: str) -> Any:
        return self.values[word]

    @property
    def ball(self) -> tuple[str, float, int, float]:
        """Norm and radius of the ball, number of steps, and step size of the method's gradient ascent."""
        return self.norm, self.epsilon, self.values["steps"], self.values["step_size"]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON types."""
        return {**asdict(self), "values": dict(self.values)}


def check_value(word: str, value: Any) -> Any:
    """Convert the value of a training parameter to its type, and check the value.

    Raises:
        UnknownName: If the parameter does not exist.
        InvalidInput: If the value has the wrong type or is out of range.
    """
    if isinstance(value, str) and WORDS.get(word, WORDS["start"]).type is not str:
        value = parse_parameter(word, value, WORDS)
    value = check_parameter(word, value, WORDS)
    if word in _CHOICES and value not in _CHOICES[word]:
        raise InvalidInput(f"expected {word} as {' or '.join(_CHOICES[word])}, got {value!r}")
    return value
