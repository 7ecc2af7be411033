"""Temporary conversion of a user's module to a classifier."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from ...errors import WrongType
from .classifier import Classifier
from .state_guard import preserve_module_state
from .zoo.declared_outputs import read_version


@contextmanager
def as_classifier(model: nn.Module, version: str = "") -> Iterator[Classifier]:
    """Convert a module to a frozen `Classifier` inside the block, and restore the module's state on exit.

    No weights are copied, so changed weight values are not restored. `state_guard.preserve_module_state` describes the
    restored state. A `Classifier` is used unchanged.

    Args:
        model: returns logits for images in [0, 1].
        version: version of the model, part of the model identity. The user changes the version when the model changes
            in a way that davylamp cannot detect. "" for no version.

    Raises:
        InvalidInput: if `version` is not valid.
        WrongType: if `model` is not a module.
    """
    if not isinstance(model, nn.Module):
        name = "; load_model loads one by name" if isinstance(model, str) else ""
        raise WrongType(f"expected a model as a torch.nn.Module, got {type(model).__name__}{name}")
    with preserve_module_state(model):
        classifier = model if isinstance(model, Classifier) else Classifier(model)
        before = classifier.model_version
        if version != "":
            classifier.say_version(read_version(version))
        try:
            with classifier.frozen():
                yield classifier
        finally:
            classifier.say_version(before)
