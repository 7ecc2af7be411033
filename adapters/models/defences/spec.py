"""Definition of a defence, whose name is appended to a model's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ...attack import Parameter

Gradients = Literal["exact", "straight-through", "none"]
WAYS: tuple[Gradients, ...] = get_args(Gradients)
MEMBER = "member"  # parameter of a defence with `takes_model`


@dataclass(frozen=True)
class DefenceSpec:
    """A library's input transformation, put in front of a model, or a change of the model itself.

    Args:
        name: usual name of the defence, "jpeg".
        library: library of the implementation. The defence is called "art:jpeg", and also "jpeg" if it is the first
            with this name.
        title: title for readers.
        source: the paper.
        build: "module:class" in this package: a module that maps images (N, C, H, W) in [0, 1] to such images.
        module: Python module that must be installed, "art".
        params: canonical parameters by name, with their default values.
        gradients: possible ways for gradients to pass through; the first is the default. "exact": the transformation's
            derivative. "straight-through": as if it were the identity (BPDA, Athalye et al. 2018). "none": zero
            gradients, as with a library that transforms images outside the model. Gradient attacks then fail for that
            reason alone.
        random: whether it draws random numbers in every query. The model is then judged on several samples, and an
            attack needs their mean (EOT, Athalye et al. 2018).
        wraps: whether it wraps the classifier: `build` is then called with it, and returns a module from images to
            logits, not to images.
        changes_weights: whether it changes the model's weights, which are then loaded as they were published, without
            batch normalisation folded into them.
        takes_model: whether the name continues with that of a model, "ensemble:demo:digits-cnn", instead of parameters.
        findings: known issues of the library's code.
    """

    name: str
    library: str
    title: str
    source: str
    build: str
    module: str
    params: Mapping[str, tuple[Parameter, Any]] = field(default_factory=dict)
    gradients: tuple[Gradients, ...] = ("straight-through", "none")
    random: bool = False
    wraps: bool = False
    changes_weights: bool = False
    takes_model: bool = False
    findings: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """Library and name, "art:jpeg"."""
        return f"{self.library}:{self.name}"
