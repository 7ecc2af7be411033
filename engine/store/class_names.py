"""Names of a model's classes."""

import importlib.util
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from .results import CleanResult

_CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_IMAGENET_MODELS = ("demo:", "torchvision:", "timm:")


def class_names(clean: CleanResult | None) -> Sequence[str]:
    """Return the names of a model's classes in order.

    The names come from the model's evaluation (a Hugging Face model, `--labels`), from ImageNet, or from CIFAR-10.
    ImageNet is used for 1000 classes if the name of the data or of a model collection implies ImageNet.

    Args:
        clean: the model's predictions on clean images. None if there are none.

    Returns:
        The names. Empty if the names are unknown.
    """
    if clean is None:
        return ()
    classes, given = clean.logits.shape[1], clean.meta.get("class_names")
    if isinstance(given, list) and len(given) == classes:
        return tuple(map(str, given))
    model, data = clean.subject.model.lower(), clean.subject.data.lower()
    if classes == 1000 and ("imagenet" in data or model.startswith(_IMAGENET_MODELS)):
        return imagenet_names()
    return _CIFAR if classes == 10 and any(name in data for name in ("cifar10", "cifar-10")) else ()


@cache
def imagenet_names() -> tuple[str, ...]:
    """Return the names of ImageNet's classes from torchvision's weights. Empty if torchvision is not installed.

    If possible, only torchvision's module of metadata is loaded, because importing the whole package takes seconds.
    """
    package = importlib.util.find_spec("torchvision")
    if package is None or package.origin is None:
        return ()
    file = Path(package.origin).parent / "models" / "_meta.py"
    if file.is_file():
        spec = importlib.util.spec_from_file_location("_names_of_torchvision", file)
        names = importlib.util.module_from_spec(spec) if spec else None
        if spec and spec.loader and names:
            spec.loader.exec_module(names)
            if known := getattr(names, "_IMAGENET_CATEGORIES", None):
                return tuple(known)
    from torchvision.models import ResNet50_Weights

    return tuple(ResNet50_Weights.DEFAULT.meta["categories"])
