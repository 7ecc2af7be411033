"""Where models and images come from, and the last of each, kept loaded."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..adapters import Classifier
from ..adapters.data.datasets import Data, label_mapping_key, load_data_for, select_by_name
from ..adapters.models.ensemble import mean_logit_ensemble
from ..adapters.models.remote.transport import Transport
from ..adapters.models.sandbox.isolation import NOT_ISOLATED, Isolation
from ..adapters.models.zoo.load import load_model
from ..errors import InvalidInput


class LoadOptions(NamedTuple):
    """How models that are loaded by name are asked and kept apart.

    Args:
        transport: how servers of remote models are asked; None: by default.
        isolation: which models run in a process of their own.
    """

    transport: Transport | None = None
    isolation: Isolation = NOT_ISOLATED

    def load(self, name: str, device: str) -> Classifier:
        """A model by name; errors as `load_model`."""
        return load_model(name, device, transport=self.transport, isolation=self.isolation)


LOADED_HERE = LoadOptions()


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from: a name that `load_model` knows, or the classifier itself.

    Args:
        name: of the model.
        classifier: where it was handed over.
        loading: how one that is loaded by its name is asked and kept apart.
    """

    name: str
    classifier: Classifier | None = None
    loading: LoadOptions = LOADED_HERE

    def load(self, device: str) -> Classifier:
        """The classifier on a device."""
        if self.classifier is None:
            return self.loading.load(self.name, device)
        wanted, there = torch.device(device), self.classifier.device
        if wanted.type == there.type and wanted.index in (None, there.index):
            return self.classifier  # of which parts may lie on other devices
        return self.classifier.to(device)


@dataclass(frozen=True)
class DataSource:
    """Where images come from: a name that `load_data` knows and how many of them, or the images themselves.

    Args:
        name: of the data.
        limit: only this many, the first.
        data: the images, where they were handed over.
        chosen: only those of these names; empty: all.
    """

    name: str
    limit: int | None = None
    data: Data | None = None
    chosen: tuple[str, ...] = ()

    def load(self, classifier: Classifier) -> Data:
        """The images, prepared for a classifier."""
        if self.data is not None:
            end, given = self.limit, self.data
            return select_by_name(Data(given.inputs[:end], given.labels[:end], given.names[:end]), self.chosen)
        return load_data_for(classifier, self.name, self.limit, self.chosen)


@dataclass(frozen=True)
class FitSource:
    """Where the images come from that an attack learns from: as `DataSource`, without those that are scored.

    Args:
        name: of the data.
        limit: at most this many, the first that are not scored; None: all of them.
        data: the images, where they were handed over.
    """

    name: str
    limit: int | None = None
    data: Data | None = None

    def load(self, classifier: Classifier, scored: Data) -> Data:
        """The images, prepared for a classifier.

        Args:
            classifier: the model that is judged.
            scored: its images, none of which is among them, pixel by pixel.

        Raises:
            InvalidInput: if none is left, or they have another shape.
        """
        most = None if self.limit is None else self.limit + len(scored.labels)
        inputs, labels, names = DataSource(self.name, most, self.data).load(classifier)
        if inputs.shape[1:] != scored.inputs.shape[1:]:
            shapes = f"{tuple(scored.inputs.shape[1:])}, got {tuple(inputs.shape[1:])} in {self.name}"
            raise InvalidInput(f"expected images to fit on of the shape of those that are scored, {shapes}")
        seen = {_pixels(image) for image in scored.inputs}
        left = [place for place, image in enumerate(inputs) if _pixels(image) not in seen][: self.limit]
        if not left:
            raise InvalidInput(f"expected images to fit on that are not scored, got none: all of {self.name} are")
        return Data(inputs[left], labels[left], [names[place] for place in left])


def _pixels(image: Tensor) -> bytes:
    return sha256(image.contiguous().cpu().numpy().tobytes()).digest()


class LoadedCache:
    """The last model and its images that were asked for stay loaded."""

    def __init__(self) -> None:
        self._model: tuple[Any, Classifier] | None = None
        self._surrogate: tuple[Any, Classifier] | None = None
        self._data: tuple[Any, Data] | None = None

    def adopt(self, other: "LoadedCache") -> None:
        """Have the model and the images that another loaded, unless there is one here; it lets go of them."""
        if self._model is None:
            self._model, self._data = other._model, other._data
        other.forget()

    def known(self, source: ModelSource, device: str) -> Classifier | None:
        """The classifier of a source, if it is the last that was loaded."""
        key = (source.name, id(source.classifier), device)
        return self._model[1] if self._model is not None and self._model[0] == key else None

    def forget(self) -> None:
        """Load both again when they are asked for."""
        self._model = self._data = self._surrogate = None

    def model(self, source: ModelSource, device: str) -> Classifier:
        """The classifier of a source, loaded once as long as no other is asked for."""
        key = (source.name, id(source.classifier), device)
        if self._model is None or self._model[0] != key:
            self._model = (key, source.load(device))
        return self._model[1]

    def forget_surrogate(self) -> None:
        """Load it again when it is asked for."""
        self._surrogate = None

    def surrogate(self, sources: Sequence[ModelSource], device: str) -> Classifier:
        """What examples are made on, beside the model that they are judged on: the mean of several models' logits."""
        key = (tuple((source.name, id(source.classifier)) for source in sources), device)
        if self._surrogate is None or self._surrogate[0] != key:
            self._surrogate = (key, mean_logit_ensemble([source.load(device) for source in sources]))
        return self._surrogate[1]

    def data(self, source: DataSource, classifier: Classifier) -> Data:
        """The images of a source, loaded once as long as no others are asked for."""
        made_for = (classifier.resize, classifier.crop, classifier.interpolation)
        made_for = (*made_for, classifier.channels, classifier.class_names, label_mapping_key(classifier, source.name))
        key = (source.name, source.limit, source.chosen, id(source.data), *made_for)
        if self._data is None or self._data[0] != key:
            self._data = (key, source.load(classifier))
        classifier.answers.expect_labels(self._data[1].labels)  # of all images, whichever of them a task is about
        return self._data[1]
