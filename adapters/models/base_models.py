"""Finds the innermost models of a classifier that consists of a defence, a detector or an ensemble."""

from itertools import chain

import torch

from .classifier import Classifier


def base_classifiers(classifier: Classifier) -> list[Classifier]:
    """Return the innermost classifiers inside a classifier, or the classifier itself if it contains no others."""
    inner = [part for part in classifier.model.modules() if isinstance(part, Classifier)]
    return [part for part in inner if not any(isinstance(each, Classifier) for each in part.model.modules())] or [
        classifier
    ]


def is_float32_in_torch(classifier: Classifier) -> bool:
    """Whether torch computes all innermost models in float32, in this process or in a model process."""
    return all(_is_in_torch(part) and part.anchor.dtype == torch.float32 for part in base_classifiers(classifier))


def _is_in_torch(classifier: Classifier) -> bool:
    """Whether a model has weights in torch. Models on a server or in ONNX Runtime have none."""
    of_process: bool | None = getattr(classifier, "in_torch", None)
    held = chain(classifier.model.parameters(), classifier.model.buffers())
    return any(each.is_floating_point() and each.numel() for each in held) if of_process is None else of_process
