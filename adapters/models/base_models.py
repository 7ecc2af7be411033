"""The models that a classifier asks in the end: itself, or those inside a defence, a detector or an ensemble."""

from itertools import chain

import torch

from .classifier import Classifier


def base_classifiers(classifier: Classifier) -> list[Classifier]:
    """The classifiers in a classifier that have none in them; itself, if it has none."""
    inner = [part for part in classifier.model.modules() if isinstance(part, Classifier)]
    return [part for part in inner if not any(isinstance(each, Classifier) for each in part.model.modules())] or [
        classifier
    ]


def is_float32_in_torch(classifier: Classifier) -> bool:
    """Whether torch computes what a classifier asks in the end, all of it in float32, here or in its room."""
    return all(_is_in_torch(part) and part.anchor.dtype == torch.float32 for part in base_classifiers(classifier))


def _is_in_torch(classifier: Classifier) -> bool:
    """Whether it has weights here: a server or ONNX Runtime has none that torch sees."""
    of_room: bool | None = getattr(classifier, "in_torch", None)
    held = chain(classifier.model.parameters(), classifier.model.buffers())
    return any(each.is_floating_point() and each.numel() for each in held) if of_room is None else of_room
