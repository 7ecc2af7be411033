"""Converts a script's arguments (images, labels, models, attacks, settings) to the engine's types."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import fields
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..adapters import Classifier
from ..adapters.coercion import read_int, read_list, read_text, type_error
from ..adapters.data.datasets import Data, load_data_for
from ..adapters.models.images import check_images, read_labels
from ..adapters.models.remote.answer_cache import FILE
from ..adapters.models.remote.transport import check_token
from ..adapters.models.sandbox.isolated import describe_isolated, prestart_processes
from ..adapters.models.temporary_classifier import as_classifier
from ..adapters.models.zoo.load import add_parts
from ..adapters.parameters import FOREIGN, PARAMETERS, parse_number
from ..engine import Config
from ..engine.sources import LoadOptions
from ..errors import InvalidInput, UnknownName
from ..report.text.progress import is_watched, show_runs

# Loading and isolation of models loaded by name: fields of `Config` that these functions also accept.
LOADING = (
    *("isolate", "time_limit", "memory_limit"),
    *("request_rate", "price_per_image", "token", "timeout", "request_size"),
)
Progress = Callable[..., AbstractContextManager[Callable[[str, int], object]]]  # of images, to a context that counts


def progress_of(progress: Any, show: Callable[..., Any] = show_runs) -> Any:
    """Convert the argument `progress` of a public function to a function that shows progress.

    A function is returned unchanged. For True, `show` is returned on a terminal or in a notebook. Otherwise a function
    that shows nothing is returned.

    Raises:
        WrongType: if `progress` is neither a function nor True, False or None.
    """
    if callable(progress):
        return progress
    if progress is not None and not isinstance(progress, bool):
        raise type_error("`progress` as True, False or a function", progress)
    return show if progress and is_watched() else _show_nothing


@contextmanager
def _show_nothing(*_: object) -> Iterator[Callable[[str, int], object]]:
    yield lambda *_: None


def check_loading(verb: Callable[..., Any], loading: Mapping[str, Any]) -> None:
    """Raise UnknownName if a keyword in `loading` is neither a parameter of `verb` nor a setting in `LOADING`."""
    keywords = [name for name, each in inspect.signature(verb).parameters.items() if each.kind is not each.VAR_KEYWORD]
    for name in loading:
        if name not in (*LOADING, "tell"):
            raise UnknownName("keyword", name, {*keywords, *LOADING})


def loading_of(
    settings: Mapping[str, Any], models: Iterable[str] = (), folder: str | PathLike[str] | None = None
) -> LoadOptions:
    """Return the options for loading models by name, and start the processes of isolated models.

    Args:
        settings: settings in `LOADING`, checked by `check_loading`. If they have an entry "tell", this function is
            called with a message about each model that runs in a separate process.
        models: names of the models that will be loaded, if known.
        folder: results folder, in which the responses of model servers are cached. None for no cache.

    Raises:
        InvalidInput: if a setting has a wrong value, or if the token would be sent to several hosts.
    """
    config, names = Config(**{name: settings[name] for name in LOADING if name in settings}), list(models)
    check_token(config.token, names)
    prestart_processes(config.isolation, names)
    for line in describe_isolated(config.isolation, names) if "tell" in settings else ():
        settings["tell"](line)
    return LoadOptions(config.transport("" if folder is None else Path(folder).expanduser() / FILE), config.isolation)


def lend_model(model: Any, stack: ExitStack, device: str, loading: Mapping[str, Any], version: str = "") -> Classifier:
    """Return a model as a `Classifier`. A model given by its name is loaded.

    A module is wrapped without a copy. When `stack` is closed, the module has its earlier state again. `version` is a
    label that becomes part of the module's name.
    """
    named = isinstance(model, str)
    how = loading_of(loading, [model] if named else [])
    return how.load(model, device) if named else stack.enter_context(as_classifier(model, version))


def name_of(module: nn.Module) -> str:
    """Return the name of a `Classifier`, or the class name of any other module."""
    return module.name if isinstance(module, Classifier) else type(module).__name__


def read_limit(limit: Any) -> int | None:
    """Convert the argument `limit` to a number of images. None stays None. Raises InvalidInput for wrong values."""
    return None if limit is None else read_int(limit, "`limit` as a whole number from 1", 1, 2**31 - 1)


def read_several(value: Any, wanted: str, kind: type | tuple[type, ...] = object) -> list[Any]:
    """Convert a value to a list, see `read_list`. Raises InvalidInput if the list is empty."""
    several = read_list(value, wanted, kind)
    if not several:
        raise InvalidInput(f"expected {wanted}, got an empty list")
    return several


def read_names(value: Any, name: str) -> list[str] | None:
    """Convert one name or several names to a list. For a mapping, return the list of keys. None stays None."""
    several = list(value) if isinstance(value, Mapping) else value
    return None if value is None else read_several(several, f"`{name}` as one name or several", str)


def read_number(value: Any, name: str) -> float:
    """Convert a number, a fraction as text, or a tensor or array with one element to a float.

    Args:
        value: the value to convert.
        name: name of the keyword, for the error message.

    Raises:
        InvalidInput: if the value is not a number.
    """
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, str):
        return parse_number(value, f"`{name}`")
    if not isinstance(value, Real) or isinstance(value, bool):
        raise type_error(f"`{name}` as a number or a fraction such as '8/255'", value)
    return float(value)


def read_numbers(value: Any, name: str) -> list[float] | None:
    """Convert one number or several numbers to a list of floats, see `read_number`. None stays None.

    Raises:
        InvalidInput: if a value is not a number, or the list is empty.
    """
    if value is None:
        return None
    value = value.tolist() if hasattr(value, "tolist") else value
    several = [value] if isinstance(value, Real) else read_several(value, f"`{name}` as one number or several")
    return [read_number(each, name) for each in several]


def take_source(inputs: Any, labels: Any, data: Any) -> tuple[Data | str, str]:
    """Return the images and labels as `Data`, or the name of the data to load if no images are given.

    The second value is a note if the images are rounded to float32. Otherwise "".
    """
    images, rounded = coerce_data(inputs, labels, None)
    if images is not None and data is not None:
        raise InvalidInput(f"expected images or the name of data, got both (data={data!r})")
    return images or read_text("demo:imagenet" if data is None else data, "the name of data as text"), rounded


def images_of(classifier: Classifier, source: Data | str, limit: int | None) -> Data:
    """Return the first `limit` images of the source, or all images if `limit` is None.

    Data given by name are loaded with the image size of the classifier.
    """
    if isinstance(source, str):
        return load_data_for(classifier, source, limit)
    return source if limit is None else Data(source.inputs[:limit], source.labels[:limit], source.names[:limit])


def coerce_images(inputs: Any) -> tuple[Tensor, str]:
    """Convert images to a float32 tensor. The second value is a note if this rounds the images, otherwise "".

    Raises:
        InvalidInput: if the argument is not a tensor, array or list of images in [0, 1] with shape (N, C, H, W).
    """
    try:
        tensor = inputs if isinstance(inputs, Tensor) else torch.from_numpy(np.ascontiguousarray(inputs))
    except (TypeError, ValueError):  # not an array of numbers, such as images of several sizes
        got = type(inputs).__name__
        raise InvalidInput(f"expected images as a tensor or an array of shape (N, C, H, W), got {got}") from None
    check_images(tensor)
    images = tensor.float()
    exact = tensor.dtype != torch.float64 or bool((images.double() == tensor).all())
    return images, "" if exact else "images rounded from float64 to float32"


def labelled_images(inputs: Tensor, labels: Tensor, names: Iterable[str] | None) -> Data:
    """Combine images, labels and names to `Data`. If `names` is None, the names are the indices of the images.

    Raises:
        InvalidInput: if the number of names differs from the number of images.
    """
    given = None if names is None else read_list(names, "names of the images")
    texts = [str(place) for place in range(len(inputs))] if given is None else given
    if len(texts) != len(inputs):
        raise InvalidInput(f"expected {len(inputs)} names, got {len(texts)}")
    return Data(inputs, labels.long(), texts)


def coerce_data(inputs: Any, labels: Any, names: Any) -> tuple[Data | None, str]:
    """Combine images, labels and names to `Data`, or return None if `inputs` is None.

    The second value is a note if the images are rounded to float32. Otherwise "".
    """
    if inputs is None:
        if labels is not None:
            raise InvalidInput("expected images with the labels, got labels without images")
        return None, ""
    images, rounded = coerce_images(inputs)
    return labelled_images(images, read_labels(labels, len(images)), names), rounded


def _pair(pair: Any, name: str) -> Data:
    try:
        inputs, labels = pair
    except (TypeError, ValueError):
        raise InvalidInput(f"expected {name} as a name, or images and labels, got {type(pair).__name__}") from None
    images = coerce_images(inputs)[0]
    return labelled_images(images, read_labels(labels, len(images)), None)


def coerce_labelled(pair: Any) -> str | Data:
    """Convert a pair of images and labels to `Data`. A name of data is returned unchanged."""
    return pair if isinstance(pair, (str, Data)) else _pair(pair, "data")


def coerce_fit_data(settings: dict[str, Any]) -> tuple[Data | None, dict[str, Any]]:
    """Take the fit images out of the settings, if `fit_data` is a pair of images and labels.

    Returns:
        The fit images, and the settings with a name as `fit_data`. If `fit_data` is a name, None and the same settings.
    """
    given = settings.get("fit_data", "")
    if isinstance(given, str):
        return None, settings
    return _pair(given, "fit_data"), {**settings, "fit_data": "given to fit on"}


def classifiers_from_modules(
    models: Any, stack: ExitStack, settings: dict[str, Any], version: str = ""
) -> tuple[dict[str, Classifier] | None, dict[str, Any]]:
    """Convert the argument `models` of a public function.

    A module is wrapped as a classifier without a copy. When `stack` is closed, the module has its earlier state again.

    Args:
        models: a module, modules by name, or names of models.
        stack: context managers that the caller closes at the end.
        settings: other arguments of the function.
        version: version label, which becomes part of the name of each module.

    Returns:
        The classifiers by name, or None if `models` consists of names. And `settings`, to which the device of the
        modules was added, or the names of the models as "models".
    """
    if isinstance(models, nn.Module):
        models = {name_of(models): models}
    if not isinstance(models, Mapping) or not models:
        return None, {**settings, "models": name_models(models)}
    names = {name: read_text(name, "the name of each module as text") for name in models}
    given = {
        add_parts(names[name], version=version): stack.enter_context(as_classifier(each, version))
        for name, each in models.items()
    }
    devices = {str(classifier.device) for classifier in given.values()}
    # A model on a GPU is evaluated there.
    return given, {"device": next(iter(devices)), **settings} if len(devices) == 1 else settings


def name_models(models: Any) -> tuple[str, ...]:
    """Convert one model name or several model names to a tuple. Raises InvalidInput for other types."""
    names = (models,) if isinstance(models, str) else tuple(models) if isinstance(models, Iterable) else ()
    if not names or not all(isinstance(name, str) for name in names):
        empty = "an empty " if isinstance(models, Iterable) and not names else ""
        got = f"{empty}{type(next((name for name in names if not isinstance(name, str)), models)).__name__}"
        raise InvalidInput(f"expected modules by name as {{name: module}}, one module, or names of models, got {got}")
    return names


def as_model_list(surrogate: Any) -> list[Any]:
    """Convert the argument `surrogate`, one model or several models, to a list of modules and names."""
    if isinstance(surrogate, Mapping):
        return list(surrogate.values())
    if isinstance(surrogate, (nn.Module, str)) or not isinstance(surrogate, Iterable):
        return [surrogate]
    return list(surrogate)


def name_surrogates(surrogate: Any) -> dict[str, nn.Module | None]:
    """Return the surrogate models by name. The value is a module, or None for a model that will be loaded by name."""
    if isinstance(surrogate, Mapping):
        return dict(surrogate)
    named: dict[str, nn.Module | None] = {}
    for each in [] if surrogate is None else as_model_list(surrogate):
        name = each if isinstance(each, str) else name_of(each)
        while name in named and not isinstance(each, str):
            name = f"{name}'"
        named[name] = None if isinstance(each, str) else each
    return named


def split_settings(settings: Mapping[str, Any], parameters: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split keywords into settings of `Config` and attack parameters.

    Returns:
        The settings, and the attack parameters including those in `parameters`.

    Raises:
        UnknownName: if a keyword is neither a setting nor an attack parameter.
        InvalidInput: if a keyword is also in `parameters`.
    """
    known = [field.name for field in fields(Config) if field.name != "attacks"]
    for name in settings:
        if name in known:
            continue
        if name not in PARAMETERS:
            meant = "measures" if name in ("metric", "metrics") else FOREIGN.get(name, "")
            raise UnknownName("setting", name, [*known, *PARAMETERS], meant=meant)
        if name in parameters:
            raise InvalidInput(f"{name} is given twice, as a keyword and in `parameters`; give it once")
    rest = {name: value for name, value in settings.items() if name in known}
    return rest, {**parameters, **{name: value for name, value in settings.items() if name not in known}}
