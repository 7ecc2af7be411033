"""Prepares a training: loads the images, holds some out, and completes the settings."""

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
    """The images and settings of a training. `chosen` describes the choices that davylamp made."""

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
        classifier: model to train, which determines the image size.
        data: training data: their name, or the loaded images.
        validation: validation data. None for a part of the training data.
        asked: method, norm, epsilon (None for the customary one), and parameters.
        held_out: proportion to hold out without validation data.
        limit: largest number of images; the first images of the data are used.
        **more: seed, mixed_precision, fresh.

    Raises:
        DavylampError: As for `load_data_for`, `split_data` and `make_settings`.
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
    """Return the name of the initial model. For a weights file, it is the model to which the weights belong.

    Raises:
        InvalidInput: If the file does not name its model.
    """
    base = base_model_name(model)
    if not base:
        raise InvalidInput(f"use MODEL+{model}, because these weights do not name their model")
    return base
