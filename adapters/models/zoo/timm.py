"""timm's classifiers for square images, with the preprocessing of their pretrained configuration."""

import math
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from ....errors import MissingLibrary, UnknownName, Unsupported
from ..classifier import Classifier
from .provider import Provider
from .state_dict import Architecture
from .weights import check_hash, check_reachable, checkpoint_folder, fetch_weights, loading, quietly


def _load(name: str, rest: str) -> Classifier:
    timm = _library()
    config = _config_of(timm, rest)
    file = _file_of(config, name)
    # custom_load describes the file at the url; the hub's files are plain state dicts.
    custom = config.custom_load and not config.hf_hub_id
    overlay = {"file": str(file), "custom_load": custom} if file.exists() else {}
    with loading(name, file):
        model = timm.create_model(rest, pretrained=True, pretrained_cfg_overlay=overlay)
    return Classifier(model, name=name, **_settings(model, config.num_classes))


def _architecture(rest: str) -> Architecture:
    timm = _library()
    config = _config_of(timm, rest)

    def make(classes: int) -> nn.Module:
        with quietly():
            return timm.create_model(rest, pretrained=False, num_classes=classes)

    with torch.device("meta"):
        return Architecture(make, _settings(make(config.num_classes), config.num_classes))


def _library() -> ModuleType:
    try:
        import safetensors  # noqa: F401 - timm needs it
        import timm
        import timm.data.config
    except ImportError as error:
        raise MissingLibrary(error.name or "timm", "timm") from error
    return timm


def _settings(model: nn.Module, classes: int) -> dict[str, Any]:
    from timm.data.config import resolve_model_data_config

    data = resolve_model_data_config(model)
    side = data["input_size"][-1]
    return {
        "num_classes": classes,
        "mean": data["mean"],
        "std": data["std"],
        "resize": math.floor(side / data["crop_pct"]),
        "crop": side,
        "interpolation": data["interpolation"],
    }


def _config_of(timm: ModuleType, name: str) -> Any:
    """Return the pretrained configuration of a timm model. Raises Unsupported unless it classifies square images."""
    pretrained = timm.list_pretrained()
    if name not in pretrained and name not in timm.list_models():
        raise UnknownName("timm model", name, [*pretrained, *timm.list_models()], hint="see timm.list_pretrained()")
    config = timm.get_pretrained_cfg(name)
    if config is None or not config.has_weights:
        raise Unsupported(f"timm:{name} has no pretrained weights")
    if not config.num_classes:
        raise Unsupported(f"timm:{name} has no classification head: its weights are for feature extraction")
    height, width = config.input_size[-2:]
    if height != width:
        raise Unsupported(f"timm:{name} takes images of {width} x {height}; only square images are supported")
    return config


def _file_of(config: Any, name: str) -> Path:
    """Return the path of the weights in torch's folder or the Hugging Face cache.

    They may not have been downloaded yet.

    timm itself would query the Hugging Face hub first, even for cached weights. Without a network, this takes most of a
    minute.
    """
    from huggingface_hub import hf_hub_url, try_to_load_from_cache

    if not config.hf_hub_id:
        return fetch_weights(config.url, name)
    file = checkpoint_folder() / f"{config.architecture}.{config.tag}.safetensors"
    cached = (try_to_load_from_cache(config.hf_hub_id, n) for n in ("model.safetensors", "pytorch_model.bin"))
    file = file if file.exists() else Path(next((path for path in cached if isinstance(path, str)), file))
    if file.exists():
        check_hash(name, file)
    else:
        check_reachable(hf_hub_url(config.hf_hub_id, "model.safetensors"), name, file)
    return file


PROVIDER = Provider("timm", _load, ("timm:NAME",), architecture=_architecture)
