"""What a defence is to davylamp: one record, whose name stands behind a model's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ...attack import Parameter

Gradients = Literal["exact", "straight-through", "none"]
WAYS: tuple[Gradients, ...] = get_args(Gradients)


@dataclass(frozen=True)
class DefenceSpec:
    """A transformation of the input as a library has it, put in front of a model.

    Args:
        name: what the field calls it, "jpeg".
        library: whose code transforms; the defence is called "art:jpeg", or "jpeg" where it is the first of its name.
        title: for people.
        source: the paper.
        build: "module:class" in this package: a module that maps images (N, C, H, W) in [0, 1] to such images.
        module: that has to be installed for it, "art".
        params: its parameters by name, in one vocabulary, with the value that each has if nobody says.
        gradients: the ways in which gradients can pass it, the first if nobody says. "exact": the transformation's
            derivative. "straight-through": as if it were the identity (BPDA, Athalye et al. 2018). "none": they are
            zero behind it, as where a library transforms outside of the model: attacks by gradients then fail for
            that reason alone.
        random: it draws random numbers at every answer: the model is judged by repeated draws, and an attack needs
            their mean (EOT, Athalye et al. 2018).
        wraps: it is made of the classifier: "module:class" maps images to logits, not to images.
        findings: what is known of the library's code.
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
    findings: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """Library and name, "art:jpeg"."""
        return f"{self.library}:{self.name}"
