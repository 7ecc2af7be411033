"""A user's module as a classifier for a while, and afterwards as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from ...errors import WrongType
from .classifier import Classifier
from .state_guard import preserve_module_state
from .zoo.declared_outputs import read_version


@contextmanager
def as_classifier(model: nn.Module, version: str = "") -> Iterator[Classifier]:
    """The module as a frozen classifier inside the block; all of it but the values of its weights is put back after it.

    No weights are copied; see `restoring.restored` for what is put back. A `Classifier` is used as it is.

    Args:
        model: returns logits for images in [0, 1].
        version: a part of what it is, to be changed with what cannot be seen of it; "": none.

    Raises:
        InvalidInput: if it is no version.
        WrongType: if it is no module.
    """
    if not isinstance(model, nn.Module):
        name = "; load_model gives the one of a name" if isinstance(model, str) else ""
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
