"""torchvision's classifiers, with the preprocessing of their weights."""

from typing import Any

from ....errors import UnknownName, Unsupported
from ..classifier import Classifier
from .provider import Provider
from .state_dict import Architecture
from .weights import fetch_weights, loading


def _load(name: str, rest: str) -> Classifier:
    from torchvision import models

    weights = weights_of(rest)
    settings = preprocessing_of(weights)
    file = fetch_weights(weights.url, name, weights.meta.get("_file_size"))
    # The builder converts old files if needed, and reads this one.
    with loading(name, file):
        model = models.get_model(rest.partition(":")[0], weights=weights)
    return Classifier(model, name=name, **settings)


def _architecture(rest: str) -> Architecture:
    from torchvision import models

    settings = preprocessing_of(weights_of(rest))
    return Architecture(lambda classes: models.get_model(rest.partition(":")[0], num_classes=classes), settings)


def list_models() -> list[str]:
    """Return the names of torchvision's classifiers."""
    from torchvision import models

    return models.list_models(module=models)


def weights_of(rest: str) -> Any:
    """Return torchvision's weights for "NAME" (the default weights) or "NAME:WEIGHTS", as a member of its enum."""
    from torchvision import models

    architecture, _, tag = rest.partition(":")
    known = list_models()
    if architecture not in known:
        raise UnknownName("torchvision model", architecture, known, hint="see torchvision.models.list_models()")
    choices = models.get_model_weights(architecture).__members__
    if (tag or "DEFAULT") not in choices:
        raise UnknownName(f"weights of torchvision:{architecture}", tag, choices)
    weights = choices[tag or "DEFAULT"]
    if not weights.meta.get("categories"):
        raise Unsupported(f"torchvision:{rest} has no classification head: its weights are for feature extraction")
    return weights


def preprocessing_of(weights: Any) -> dict[str, Any]:
    """Return the arguments of `Classifier` that belong to weights of torchvision. Nothing is downloaded."""
    transforms = weights.transforms()
    return {
        "num_classes": len(weights.meta["categories"]),
        "mean": transforms.mean,
        "std": transforms.std,
        "resize": transforms.resize_size[0],
        "crop": transforms.crop_size[0],
        "interpolation": transforms.interpolation.value,
    }


_PATTERNS = ("torchvision:NAME", "torchvision:NAME:WEIGHTS")
PROVIDER = Provider("torchvision", _load, _PATTERNS, list_models, architecture=_architecture)
