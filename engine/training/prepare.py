"""Prepares a training: loads the images, holds out images for measurements, and completes the settings."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...adapters.catalogue.default_threat_model import default_epsilon
from ...adapters.data.datasets import Data, load_data_for
from ...adapters.display_text import format_radius
from ...adapters.models.classifier import Classifier
from ...adapters.models.zoo.weights_file import base_model_name
from ...errors import InvalidInput
from .held_out import split_data
from .methods import find_method, make_settings
from .settings import NORMS, TrainingSettings


class Prepared(NamedTuple):
    """Images and settings of a training.

    Args:
        training: images and labels for the training.
        held_out: images and labels for the measurements.
        settings: complete settings of the training.
        chosen: settings that the user did not give and davylamp chose, in words.
    """

    training: Data
    held_out: Data
    settings: TrainingSettings
    chosen: str


def prepare_training(
    classifier: Classifier,
    data: str | Data,
    validation: str | Data | None,
    asked: tuple[str, str, float | None, Mapping[str, Any]],
    *,
    held_out: float = 0.1,
    limit: int | None = None,
    **more: Any,
) -> Prepared:
    """Load the images of a training and complete its settings.

    Args:
        classifier: the model to train. Images are loaded in the size that the model needs.
        data: name of the training data, or images with labels.
        validation: name of the data for measurements, or images with labels. None holds out a part of `data`.
        asked: method, norm, radius and parameters of the training. If the radius is None, the customary radius of the
            norm and image size is used.
        held_out: proportion of `data` to hold out if `validation` is None.
        limit: number of images of `data` to use, from the beginning. None for all.
        **more: fields `seed`, `mixed_precision` and `fresh` of `TrainingSettings`.

    Raises:
        DavylampError: If the images cannot be loaded or split, or if a setting is invalid.
    """
    method, norm, epsilon, given = asked
    find_method(method)
    if norm in NORMS:  # report invalid values before reading data
        make_settings(method, norm, 0.5 if epsilon is None else epsilon, given, **more)
    images = data if isinstance(data, Data) else load_data_for(classifier, data, limit)
    if isinstance(data, Data) and limit is not None:
        images = Data(images.inputs[:limit], images.labels[:limit], images.names[:limit])
    customary = default_epsilon(norm, images.inputs[0].numel()) or 0.0  # type: ignore[arg-type]
    radius = customary if epsilon is None else epsilon
    settings = make_settings(method, norm, radius, given, **more)
    if validation is None:
        training, held = split_data(images, held_out, settings.seed)
        apart = f"held out {len(held.labels)} of {len(images.labels)} images at random, seed {settings.seed}"
    else:
        held = validation if isinstance(validation, Data) else load_data_for(classifier, validation)
        training, apart = images, ""
    open_numbers = {word: value for word, value in settings.values.items() if word not in given}
    words = [apart] if apart else []
    words += [] if epsilon is not None else [f"epsilon {format_radius(norm, radius)}"]
    words += [
        f"{word} {value:.6g}" if isinstance(value, float) else f"{word} {value}" for word, value in open_numbers.items()
    ]
    return Prepared(training, held, settings, ", ".join(words))


def base_name(model: str) -> str:
    """Return the name that loads the model of a training, without trained weights.

    Args:
        model: name of a model, or a weights file of `harden`. For a weights file, the name in the file is returned.

    Raises:
        InvalidInput: If a weights file does not contain the name of its model.
    """
    base = base_model_name(model)
    if not base:
        raise InvalidInput(f"the weights file does not contain the name of its model; give the model as MODEL+{model}")
    return base
