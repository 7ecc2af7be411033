"""Names of classes for a page: those that a model or its data gave, ImageNet's and CIFAR-10's where these are meant."""

import importlib.util
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ...engine.store.outcomes import Clean

_CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_IMAGENET_MODELS = ("demo:", "torchvision:", "timm:")


def class_names(clean: Clean | None) -> Sequence[str]:
    """The names of a model's classes in its order; empty where none are known.

    Known are those that the model itself gave when it was evaluated (a Hugging Face model, `--labels`); those of
    ImageNet for 1000 classes where the data or a collection of ImageNet models says so; those of CIFAR-10.
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


def class_text(names: Sequence[str], index: int) -> str:
    """A class as the page writes it: "tabby (281)", or its index alone."""
    return f"{names[index]} ({index})" if 0 <= index < len(names) else str(index)


@cache
def imagenet_names() -> tuple[str, ...]:
    """The categories of torchvision's ImageNet weights; empty without torchvision.

    Its module of names is read alone where it is there: the whole package takes seconds to import.
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
