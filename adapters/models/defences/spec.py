"""Definition of a defence. Its name is appended to that of a model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ...attack import Parameter

Gradients = Literal["exact", "straight-through", "none"]
WAYS: tuple[Gradients, ...] = get_args(Gradients)
MEMBER = "member"  # parameter of a defence with `takes_model`


@dataclass(frozen=True)
class DefenceSpec:
    """A defence: a library's transformation of the input images, or a change of the model itself.

    Args:
        name: usual name of the defence, such as "jpeg".
        library: library of the implementation, such as "art". The full name is then "art:jpeg". The first defence with
            a name is also available under this name alone.
        title: title for display.
        source: the paper.
        build: "module:class" in this package. The class is a module that maps images (N, C, H, W) in [0, 1] to such
            images.
        module: Python module that must be installed, such as "art".
        params: canonical parameters by name, with their default values.
        gradients: the supported ways in which gradients pass through, with the default first. "exact": the derivative
            of the transformation. "straight-through": as if the transformation were the identity (BPDA, Athalye et al.
            2018). "none": zero gradients, as if a library transformed the images outside the model. Gradient attacks
            then fail for this reason alone.
        random: whether the defence draws random numbers in every query. The model is then judged on several samples,
            and an attack should average several samples (EOT, Athalye et al. 2018).
        wraps: whether `build` is called with the classifier and returns a module from images to logits.
        changes_weights: whether the defence changes the model's weights. The model is then loaded without folding batch
            normalisation into them.
        takes_model: whether the name is followed by that of a model, as in "ensemble:demo:digits-cnn", instead of
            parameters.
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
        """Library and name, such as "art:jpeg"."""
        return f"{self.library}:{self.name}"
