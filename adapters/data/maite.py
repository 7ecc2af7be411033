"""Converts models and data sets between davylamp's types and those of MAITE 0.10 (MIT) for image classification.

MAITE's types are protocols: any object with the required attributes can be used. MAITE itself is not imported.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import InvalidInput
from ..models.classifier import Classifier
from ..user_code_guard import guard_user_code
from .array_files import open_arrays
from .datasets import Data


class MaiteModule(nn.Module):
    """A module that wraps a MAITE model.

    The MAITE model is called with a batch as a list of images. If its outputs are not differentiable, the images are on
    the CPU.
    """

    def __init__(self, model: Any, gradients: bool):
        super().__init__()
        self.inner, self.gradients = model, gradients
        self.layers_note = "" if isinstance(model, nn.Module) else "a MAITE model's layers cannot be read"

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the MAITE model's outputs, shape (N, K)."""
        if self.gradients:
            return torch.stack(list(self.inner(list(inputs))))
        rows = (row.detach() if isinstance(row, Tensor) else row for row in self.inner(list(inputs.detach().cpu())))
        return torch.stack([torch.as_tensor(np.asarray(row)) for row in rows]).to(inputs)


class MaiteModel:
    """A MAITE model that wraps a classifier. It maps each image (C, H, W) in [0, 1] to outputs (K,) on the CPU."""

    def __init__(self, classifier: Classifier):
        self.classifier = classifier
        self.metadata = {"id": classifier.name}

    def __call__(self, batch: Sequence[Any], /) -> list[Tensor]:
        """Return the scores of each image, shape (K,)."""
        inputs = torch.stack([torch.as_tensor(np.asarray(image), dtype=torch.float32) for image in batch])
        return list(self.classifier.predict_logits(inputs))


class MaiteDataset:
    """A MAITE data set of labelled images. An item is (image in [0, 1], one-hot label, {"id": name of the image})."""

    def __init__(self, data: Data, num_classes: int, name: str):
        self.data, self.metadata = data, {"id": name}
        self.targets = nn.functional.one_hot(data.labels, num_classes).float()

    def __getitem__(self, place: int, /) -> tuple[Tensor, Tensor, dict[str, str]]:
        return self.data.inputs[place], self.targets[place], {"id": self.data.names[place]}

    def __len__(self) -> int:
        return len(self.data.labels)


def from_maite(thing: Any, *, gradients: bool | None = None, **options: Any) -> Any:
    """Convert a MAITE model to a `Classifier`, or a MAITE data set to `Data`.

    Args:
        thing: MAITE model or data set. Images of a data set must be in [0, 1] or have 8 bits. The class of an image is
            the position of the largest entry of its target. There must be only one largest entry.
        gradients: whether the model's outputs are differentiable. None for True if the model is a `torch.nn.Module`,
            and False otherwise.
        **options: options of `Classifier`, such as `mean=[0] * 3, std=[1 / 255] * 3` for a model that expects images in
            [0, 255].

    Raises:
        DavylampError: if `thing` is neither a model nor a data set, if the data set fails, or if its items are not
            labelled images of one size.
    """
    identity = getattr(thing, "metadata", None)
    if not isinstance(identity, Mapping) or "id" not in identity:
        raise InvalidInput(f'expected a MAITE model or data set (metadata with an "id"), got {type(thing).__name__}')
    name = str(identity["id"])
    if hasattr(thing, "__getitem__") and hasattr(thing, "__len__"):
        with guard_user_code(f"the MAITE data set {name}"):
            items = [thing[place] for place in range(len(thing))]
            images = np.stack([np.asarray(item[0]) for item in items])
            targets = [np.asarray(item[1]) for item in items]
            about = [item[2] for item in items]
        labels = np.array([_label(target, place, name) for place, target in enumerate(targets)])
        for place, said in enumerate(about):
            if not isinstance(said, Mapping) or "id" not in said:
                raise InvalidInput(f'expected metadata with an "id" for each image in {name}; image {place} has none')
        return open_arrays(images, labels, name, None, [str(said["id"]) for said in about]).take()
    if not callable(thing):
        raise InvalidInput(f"expected a MAITE model or data set, got {type(thing).__name__}, which cannot be called")
    differentiable = isinstance(thing, nn.Module) if gradients is None else gradients
    return Classifier(MaiteModule(thing, differentiable), **{"name": name, "gradients": differentiable, **options})


def _label(target: np.ndarray, place: int, name: str) -> int:
    """Return the class number of a target of shape (K,): the position of its largest entry.

    Raises:
        InvalidInput: if the target has a different shape, contains NaN, or has no unique largest entry.
    """
    wanted = f"a one-hot or probability target of shape (classes,) for each image in {name}"
    if target.ndim != 1 or not len(target) or target.dtype.kind not in "biuf":
        raise InvalidInput(f"expected {wanted}, got {target.dtype} of shape {target.shape} for image {place}")
    if not np.isfinite(target).all():
        raise InvalidInput(f"expected {wanted}, got NaN or infinity for image {place}")
    if not target.any() or (target == target.max()).sum() > 1:
        raise InvalidInput(f"expected {wanted}, got a target without a unique largest entry for image {place}")
    return int(target.argmax())


def to_maite(thing: Classifier | Data, *, num_classes: int | None = None, name: str = "davylamp") -> Any:
    """Convert a classifier to a MAITE model, or labelled images to a MAITE data set.

    Args:
        thing: a `Classifier`, or labelled images.
        num_classes: for a data set, length of the one-hot labels. None for the largest label plus one.
        name: for a data set, value of "id" in its metadata.

    Raises:
        InvalidInput: if the data have no images, or a label is not below `num_classes`.
    """
    if isinstance(thing, Classifier):
        return MaiteModel(thing)
    if not len(thing.labels):
        raise InvalidInput("expected labelled images, got none")
    classes = int(thing.labels.max()) + 1 if num_classes is None else num_classes
    if int(thing.labels.min()) < 0 or int(thing.labels.max()) >= classes:
        got = f"{int(thing.labels.min())} to {int(thing.labels.max())}"
        raise InvalidInput(f"expected labels from 0 and below num_classes={classes}, got {got}")
    return MaiteDataset(thing, classes, name)
