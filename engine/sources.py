"""Loads models and images, and caches the last loaded model and images."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..adapters import Classifier
from ..adapters.data.datasets import (
    Data,
    ImagePreparation,
    find_places,
    label_mapping_key,
    open_data_for,
    open_prepared,
)
from ..adapters.data.lazy_data import LazyData
from ..adapters.models.ensemble import mean_logit_ensemble
from ..adapters.models.identity.digest import digest_data
from ..adapters.models.remote.server_usage import note_shape
from ..adapters.models.remote.transport import Transport
from ..adapters.models.sandbox.isolation import NOT_ISOLATED, Isolation
from ..adapters.models.zoo.load import load_model
from ..adapters.running.readings import identify_asked
from ..errors import DavylampError, InvalidInput, Unavailable
from .attack_run import ModelOnData


class LoadOptions(NamedTuple):
    """Options for loading models by name.

    Args:
        transport: HTTP settings for remote models. None for the default settings.
        isolation: rule that decides which models run in a separate process.
    """

    transport: Transport | None = None
    isolation: Isolation = NOT_ISOLATED

    def load(self, name: str, device: str) -> Classifier:
        """Load a model by name.

        Raises:
            DavylampError: the errors of `load_model`.
        """
        return load_model(name, device, transport=self.transport, isolation=self.isolation)


LOADED_HERE = LoadOptions()


def random_order(images: int, seed: int) -> list[int]:
    """Return the indices of images in a random order that depends only on the seed."""
    return np.random.default_rng(seed).permutation(images).tolist()


@dataclass(frozen=True)
class ModelSource:
    """A model, given by a name that `load_model` knows or as a classifier.

    Args:
        name: name of the model.
        classifier: the classifier, if the caller passed one. None to load the model by name.
        loading: options for a model that is loaded by name.
    """

    name: str
    classifier: Classifier | None = None
    loading: LoadOptions = LOADED_HERE

    def load(self, device: str) -> Classifier:
        """Return the classifier, on a device."""
        if self.classifier is None:
            return self.loading.load(self.name, device)
        wanted, there = torch.device(device), self.classifier.device
        if wanted.type == there.type and wanted.index in (None, there.index):
            return self.classifier  # parts of it may be on other devices
        return self.classifier.to(device)


@dataclass(frozen=True)
class DataSource:
    """Images, given by a name that `load_data` knows or as `Data`.

    Args:
        name: name of the data.
        limit: number of images; the first ones are used. None for all.
        data: the images, if the caller passed them. None to load them by name.
        chosen: names of the images to select; empty for all.
        drawn: two numbers, as in `ModelOnData.drawn`: the number of images to draw from, and a seed. The images are put
            in `random_order`, and then the first `limit` images are used. Empty for the order of the data.
    """

    name: str
    limit: int | None = None
    data: Data | None = None
    chosen: tuple[str, ...] = ()
    drawn: tuple[int, ...] = ()

    @classmethod
    def of_subject(cls, subject: ModelOnData, data: Data | str | None = None) -> "DataSource":
        """Return the source of the images of a record.

        Args:
            subject: the model and the images of the record.
            data: the images, or a different name under which they can be loaded. None for the name in the record.
        """
        name, given = (data, None) if isinstance(data, str) else (subject.data, data)
        return cls(name, None if subject.chosen else subject.images, given, subject.chosen, subject.drawn)

    def open(self, classifier: Classifier | None) -> LazyData:
        """Return all images from which the source selects, prepared for a classifier or as from `load_data`.

        For drawn images, they are the population.

        Raises:
            Unavailable: if the number of all images differs from the recorded number.
        """
        end = self.drawn[0] if self.drawn else self.limit
        if self.data is not None:
            given = Data(self.data.inputs[:end], self.data.labels[:end], self.data.names[:end])
            images = LazyData(given.labels, given.names, partial(_take_inputs, given.inputs))
        elif classifier is None:
            images = open_prepared(self.name, end, ImagePreparation(None, None, "bilinear"))
        else:
            images = open_data_for(classifier, self.name, end)
        if self.drawn and len(images.labels) != end:
            raise Unavailable(f"expected {end} images of {self.name}, got {len(images.labels)}")
        return images

    def load(self, classifier: Classifier | None) -> Data:
        """Return the images, prepared for a classifier; without a classifier, as from `load_data`."""
        images = self.open(classifier)
        if self.drawn:
            data, labels = DrawnImages(images, self.drawn[1]).take(self.limit), images.labels
        else:
            data = images.take(find_places(images.names, self.chosen))
            labels = data.labels
        if classifier is not None and self.data is None:
            classifier.answers.expect_labels(labels)
        return data


def _take_inputs(inputs: Tensor, places: Sequence[int] | None) -> Tensor:
    return inputs if places is None else inputs[list(places)]


class DrawnImages:
    """Images in random order. Each is decoded once, when it is first needed.

    Args:
        images: the population.
        seed: seed of the order.
    """

    def __init__(self, images: LazyData, seed: int):
        self.population = images
        self._order = random_order(len(images.labels), seed)
        self._decoded: list[Data] = []

    def take(self, count: int | None) -> Data:
        """Return the first images in random order.

        Args:
            count: number of images; None for all.

        Raises:
            DavylampError: if an image cannot be read, or has a different size from the others.
        """
        there = sum(len(data.labels) for data in self._decoded)
        places = self._order[there:count]
        if places:
            more = self.population.take(places)
            shapes = [tuple(data.inputs.shape[1:]) for data in (*self._decoded, more)]
            if len({*shapes}) > 1:
                raise InvalidInput(
                    f"expected images of one size, got {shapes[0]} and {shapes[-1]}; give resize and crop"
                )
            self._decoded = [_join([*self._decoded, more])]
        data = self._decoded[0]
        return Data(data.inputs[:count], data.labels[:count], data.names[:count])


def _join(parts: Sequence[Data]) -> Data:
    if len(parts) == 1:
        return parts[0]
    names = [name for data in parts for name in data.names]
    return Data(torch.cat([data.inputs for data in parts]), torch.cat([data.labels for data in parts]), names)


@dataclass(frozen=True)
class FitSource:
    """Images on which an attack is fitted, given by a name or as `Data`. Evaluation images are removed when loading.

    Args:
        name: name of the data.
        limit: largest number of images. None for all. The first images that are not evaluation images are used.
        data: the images, if the caller passed them. None to load them by name.
    """

    name: str
    limit: int | None = None
    data: Data | None = None

    def load(self, classifier: Classifier, scored: Data) -> Data:
        """Load the images with the size and channels that a classifier needs.

        Args:
            classifier: the evaluated model.
            scored: evaluation images. Fit images with the same pixels are removed.

        Raises:
            InvalidInput: if no image remains, or the shapes of fit images and evaluation images differ.
        """
        most = None if self.limit is None else self.limit + len(scored.labels)
        inputs, labels, names = DataSource(self.name, most, self.data).load(classifier)
        if inputs.shape[1:] != scored.inputs.shape[1:]:
            shapes = f"{tuple(scored.inputs.shape[1:])}, got {tuple(inputs.shape[1:])} in {self.name}"
            raise InvalidInput(f"expected fit images with the shape of the evaluation images, {shapes}")
        seen = {hash_pixels(image) for image in scored.inputs}
        left = [place for place, image in enumerate(inputs) if hash_pixels(image) not in seen][: self.limit]
        if not left:
            raise InvalidInput(f"expected fit images that differ from the evaluation images; {self.name} has no others")
        return Data(inputs[left], labels[left], [names[place] for place in left])


def hash_pixels(image: Tensor) -> bytes:
    """Return the SHA-256 of the pixels of an image, shape (C, H, W)."""
    return sha256(image.contiguous().cpu().numpy().tobytes()).digest()


class LoadedCache:
    """Cache of the last loaded model, the last surrogate and the last images."""

    def __init__(self) -> None:
        self._model: tuple[Any, Classifier] | None = None
        self._surrogate: tuple[Any, Classifier] | None = None
        self._data: tuple[Any, Data] | None = None
        self._drawn: tuple[Any, DrawnImages] | None = None

    def adopt(self, other: "LoadedCache") -> None:
        """Take over the model and images of another cache if this cache is empty.

        The other cache is cleared in any case.
        """
        if self._model is None:
            self._model, self._data = other._model, other._data
        other.forget()

    def known(self, source: ModelSource, device: str) -> Classifier | None:
        """Return the cached classifier of a source; None if the classifier is not cached."""
        key = (source.name, id(source.classifier), device)
        return self._model[1] if self._model is not None and self._model[0] == key else None

    def forget(self) -> None:
        """Clear the cache."""
        self._model = self._data = self._drawn = self._surrogate = None

    def model(self, source: ModelSource, device: str) -> Classifier:
        """Return the classifier of a source, from the cache or newly loaded."""
        key = (source.name, id(source.classifier), device)
        if self._model is None or self._model[0] != key:
            self._model = (key, source.load(device))
        return self._model[1]

    def forget_surrogate(self) -> None:
        """Remove the surrogate from the cache."""
        self._surrogate = None

    def surrogate(self, sources: Sequence[ModelSource], device: str) -> Classifier:
        """Return a surrogate model that averages the logits of several models, from the cache or newly loaded.

        The evaluated model stays in the cache.
        """
        key = (tuple((source.name, id(source.classifier)) for source in sources), device)
        if self._surrogate is None or self._surrogate[0] != key:
            self._surrogate = (key, mean_logit_ensemble([source.load(device) for source in sources]))
        return self._surrogate[1]

    def data(self, source: DataSource, classifier: Classifier) -> Data:
        """Return the images of a source. They are loaded unless they are cached."""
        if source.drawn:
            images = self.drawn(source, classifier, source.drawn[1])
            key = (images, source.limit)
            if self._data is None or self._data[0] != key:
                self._data = (key, images.take(source.limit))
            return self._data[1]
        key = (source.limit, *_settings(source, classifier))
        if self._data is None or self._data[0] != key:
            self._data = (key, source.load(classifier))
        classifier.answers.expect_labels(self._data[1].labels)  # of all images, also if a task covers only some
        return self._data[1]

    def drawn(self, source: DataSource, classifier: Classifier, seed: int) -> DrawnImages:
        """Return the images of a source in the random order of a seed."""
        key = (seed, source.limit if not source.drawn else None, *_settings(source, classifier))
        if self._drawn is None or self._drawn[0] != key:
            self._drawn = (key, DrawnImages(source.open(classifier), seed))
        classifier.answers.expect_labels(self._drawn[1].population.labels)
        return self._drawn[1]


def _settings(source: DataSource, classifier: Classifier) -> tuple[Any, ...]:
    """Return a key that is equal for two sources and models only if they have the same images, up to the number."""
    made_for = (classifier.resize, classifier.crop, classifier.interpolation)
    made_for = (*made_for, classifier.channels, classifier.class_names, label_mapping_key(classifier, source.name))
    return (source.name, source.chosen, id(source.data), source.drawn, *made_for)


def load_evaluated(
    bench: LoadedCache, subject: ModelOnData, source: ModelSource, data: Data | None, device: str
) -> tuple[Classifier, Data]:
    """Load an evaluated model of a results folder and its images, and verify that neither has changed.

    Args:
        bench: cache of loaded models and images.
        subject: the model and its images, as recorded in the folder.
        source: source of the model.
        data: the images. None to load them by name. The images are verified in both cases.
        device: device of the model.

    Raises:
        Unavailable: if the model or the images have changed since the evaluation.
        DavylampError: if the model or the images cannot be loaded.
    """
    classifier = bench.model(source, device)
    images = bench.data(DataSource.of_subject(subject, data), classifier)
    note_shape(classifier, images.inputs.shape)
    if identify_asked(classifier, source.name, images.inputs).digest != subject.model_digest:
        raise Unavailable(
            "the model differs from the evaluated model in weights, layers, attributes, code or preprocessing (or "
            "the results are from davylamp 0.1.0, which did not hash code); evaluate the model again"
        )
    if digest_data(images.inputs, images.labels) != subject.data_digest:
        raise Unavailable(f"the images of {subject.data} differ from the images of the evaluation")
    return classifier, images


def load_subject_images(subject: ModelOnData, data: Data | str | None, bench: LoadedCache) -> Data:
    """Load the evaluation images of a results folder, and verify that they have not changed.

    If the image size depends on the model, the model is loaded as well.

    Args:
        subject: the model and its images, as recorded in the folder.
        data: the images, or their name here if it differs from the name in the folder. None for the folder's name.
        bench: cache of loaded models and images.

    Raises:
        Unavailable: if the images cannot be loaded, or have changed since the evaluation.
    """
    reasons: list[str] = []
    source = DataSource.of_subject(subject, data)
    loaders = [lambda: source.load(None)]
    if source.data is None:
        loaders.append(lambda: bench.data(source, bench.model(ModelSource(subject.model, None), "cpu")))
    for load in loaders:
        try:
            images = load()
        except DavylampError as error:
            reasons.append(str(error))
            continue
        if digest_data(images.inputs, images.labels) == subject.data_digest:
            return images
        reasons.append("the images differ from the images of the evaluation")
    what = f"could not load the images of {subject.model} ({subject.data}) again"
    raise Unavailable(f"{what}: {reasons[-1]}; give the data set of the images as `data=NAME`")
