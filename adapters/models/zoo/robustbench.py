"""RobustBench's models by the names on its leaderboards, with the data and threat model of each."""

import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from ....errors import InvalidInput, MissingLibrary, Unavailable, UnknownName, Unsupported
from ...user_code_guard import one_line
from ..classifier import Classifier
from .provider import Provider
from .weights import check_reachable, fetch_weights, loading, quietly

COMMAND = "pip install --no-deps robustbench==1.1.1 geotorch torchdiffeq gdown beautifulsoup4 soupsieve pyautoattack"
_CLASSES = {"cifar10": 10, "cifar100": 100, "imagenet": 1000}
_DATA = {"cifar10": "torchvision:cifar10", "cifar100": "torchvision:cifar100", "imagenet": "imagefolder:PATH"}
# The radii of its leaderboards (Croce et al. 2021, RobustBench).
_RADII = {("imagenet", "Linf"): "4/255", ("cifar10", "L2"): "0.5"}
_SIZES: Mapping[str, dict[str, Any]] = {
    "Res256Crop224": {"resize": 256, "crop": 224},
    "BicubicRes256Crop224": {"resize": 256, "crop": 224, "interpolation": "bicubic"},
    "Crop288": {"crop": 288},
    "Res224": {"resize": 224, "crop": 224},
}
_OF_CIFAR = {"resize": 32, "crop": 32}
_OF_TIMM = {"resize": 224, "crop": 224, "interpolation": "bicubic"}


class ZooEntry(NamedTuple):
    """A model of RobustBench's model zoo.

    Args:
        dataset: "cifar10", "cifar100" or "imagenet".
        threat: "Linf", "L2" or "corruptions".
        name: name of the model in the zoo.
        entry: further data on the model from the zoo.
    """

    dataset: str
    threat: str
    name: str
    entry: Mapping[str, Any]

    @property
    def full_name(self) -> str:
        """The unique name of the model."""
        return f"{self.dataset}/{self.threat}/{self.name}"


def _load(name: str, rest: str) -> Classifier:
    listed = find_listed(rest, list_zoo())
    files = _weights_of(listed, name)
    utils = importlib.import_module("robustbench.utils")
    folder = files[0].parents[2] if listed.entry["gdrive_id"] else weights_folder()
    with loading(name, files[0]):
        model = utils.load_model(
            listed.name, model_dir=folder, dataset=listed.dataset, threat_model=listed.threat
        )  # reads the files that are there; tensors only, within `loading`
    classifier = Classifier(model.float(), num_classes=_CLASSES[listed.dataset], name=name, **_sizes_of(listed))
    classifier.loading_notes = (f"{name}: {_describe(listed)}",)
    return classifier


def find_listed(rest: str, zoo: list[ZooEntry]) -> ZooEntry:
    """Find a model of RobustBench by "NAME" or "DATASET/THREAT/NAME". Upper and lower case are not distinguished.

    Args:
        rest: name of the model.
        zoo: models to search, see `list_zoo`.

    Raises:
        UnknownName: if there is no such model.
        InvalidInput: if several models have this name.
    """
    wanted = rest.lower()
    matches = [each for each in zoo if wanted in (each.name.lower(), each.full_name.lower())]
    if not matches:
        known = [each.full_name if "/" in rest else each.name for each in zoo]
        raise UnknownName("RobustBench model", rest, known, hint="see its leaderboards, robustbench.github.io")
    if len(matches) > 1:
        listed = ", ".join(f"robustbench:{each.full_name}" for each in matches)
        raise InvalidInput(f"expected one RobustBench model as robustbench:{rest}, got {len(matches)}: {listed}")
    return matches[0]


@cache
def list_zoo() -> list[ZooEntry]:
    """Return all models of the zoo. The first call imports RobustBench, which takes seconds.

    Raises:
        MissingLibrary: if RobustBench, or a package that it imports, is not installed.
    """
    try:
        importlib.metadata.version("robustbench")  # torchattacks includes an old part of it under the same name
        importlib.import_module("gdown")
        with _stand_ins(), quietly():
            zoo = importlib.import_module("robustbench.model_zoo.models").model_dicts
    except ImportError as error:
        raise MissingLibrary(error.name or "robustbench", "", f"{one_line(error)}", command=COMMAND) from error
    return [
        ZooEntry(dataset.value, threat.value, name, entry)
        for dataset, threats in zoo.items()
        for threat, entries in threats.items()
        for name, entry in entries.items()
    ]


@contextmanager
def _stand_ins() -> Iterator[None]:
    """Provide two packages that RobustBench imports, inside the block.

    The first is autoattack, for which pyautoattack is used. The second is pkg_resources, which setuptools 81 removed.
    """
    given: dict[str, Any] = {}
    if importlib.util.find_spec("autoattack") is None:
        given = {name: importlib.import_module(f"py{name}") for name in ("autoattack", "autoattack.state")}
    if importlib.util.find_spec("pkg_resources") is None:
        given["pkg_resources"] = SimpleNamespace(
            resource_filename=lambda module, path: str(Path(str(sys.modules[module].__file__)).parent / path)
        )
    sys.modules.update(given)
    try:
        yield
    finally:
        for name in given:
            sys.modules.pop(name, None)


def weights_folder() -> Path:
    """Return the folder of RobustBench's weights.

    This is ./models if it contains weights. Otherwise it is a folder next to the folder of torch's weights.
    """
    here = Path("models")
    return here if any((here / dataset).is_dir() for dataset in _CLASSES) else Path(torch.hub.get_dir()) / "robustbench"


def _weights_of(listed: ZooEntry, name: str) -> list[Path]:
    source = listed.entry["gdrive_id"]
    if listed.dataset == "imagenet" and listed.name.startswith("Standard"):
        raise Unsupported(f"{name} is torchvision's ResNet-50; name it torchvision:resnet50:IMAGENET1K_V1")
    if source is None:
        return [fetch_weights(_url_of(listed), name)]
    folder = weights_folder() / listed.dataset / listed.threat
    files = [folder / f"{listed.name}.pt"]
    if isinstance(source, list):
        files = [folder / f"{listed.name}.pt_m{place}.pt" for place in range(len(source))]
    for file, identifier in zip(files, source if isinstance(source, list) else [source], strict=True):
        if not file.exists():
            _fetch(identifier, name, file)
    return files


def _url_of(listed: ZooEntry) -> str:
    """Return the URL of the weights of a model that is in timm's registry only after RobustBench was imported."""
    import timm

    architecture = f"{listed.name.lower().replace('-', '_')}_{listed.dataset}_{listed.threat.lower()}"
    config = timm.get_pretrained_cfg(architecture) if timm.is_model(architecture) else None
    if config is None or not config.url:
        raise Unsupported(f"RobustBench gives no download location for the weights of robustbench:{listed.full_name}")
    return str(config.url)


def _fetch(identifier: str, name: str, file: Path) -> None:
    """Download a file from Google Drive. It appears at its path when it is complete.

    Google Drive has no hash to verify.

    Args:
        identifier: Google Drive's id of the file.
        name: name of the model.
        file: path of the downloaded file.
    """
    url = f"https://drive.google.com/uc?id={identifier}"
    check_reachable(url, name, file)
    sys.stderr.write(f"fetching {url} (of unknown size) to {file}\n")
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with quietly():
            importlib.import_module("gdown").download(id=identifier, output=str(part))
        part.replace(file)
    except Exception as error:  # gdown's errors are of many classes
        part.unlink(missing_ok=True)
        advice = f"fetch that file on a different machine and save it here as {file}"
        raise Unavailable(f"could not fetch the weights of {name} from {url} ({one_line(error)}); {advice}") from error


def _sizes_of(listed: ZooEntry) -> dict[str, Any]:
    if listed.dataset != "imagenet":
        return _OF_CIFAR
    preprocessing = listed.entry.get("preprocessing")
    if preprocessing is None:
        return _OF_TIMM
    if preprocessing not in _SIZES:
        raise Unsupported(f"robustbench:{listed.full_name} uses the unsupported preprocessing {preprocessing}")
    return _SIZES[preprocessing]


def _describe(listed: ZooEntry) -> str:
    if listed.threat == "corruptions":
        trained = "common corruptions"
    else:
        trained = f"{listed.threat.lower()} {_RADII.get((listed.dataset, listed.threat), '8/255')}"
    return f"from RobustBench's leaderboard {listed.dataset}, {trained} (--data {_DATA[listed.dataset]})"


PROVIDER = Provider("robustbench", _load, ("robustbench:NAME", "robustbench:DATASET/THREAT/NAME"))
