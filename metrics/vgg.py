"""Loads the VGG16 features that DISTS uses, from a module or a file of weights. Nothing is downloaded."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

Features = nn.Module | str | Path
CHANNELS = (3, 64, 128, 256, 512, 512)
WIDTHS = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512)  # of the convolutions; 0: pooling
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CACHED = "vgg16-397923af.pth"
HOW = "give `features` a torchvision VGG16 or the path of its weights (torchvision.models.vgg16(weights='DEFAULT'))"


def load_features(features: Features | None, dtype: torch.dtype, device: torch.device) -> nn.Sequential:
    """Return the convolutional layers of a VGG16 for DISTS, with a given precision and device.

    Args:
        features: torchvision's VGG16, the `features` of such a model, or the path of a file of weights. None selects
            the weights in the cache of torch.hub.
        dtype: precision of the layers.
        device: device of the layers.

    Returns:
        The layers. If the precision or the device of a given module differs, the layers are a copy.

    Raises:
        FileNotFoundError: if there is no file of weights.
        ValueError: if the layers or the weights are not those of a VGG16.
        TypeError: if `features` is neither a module nor a path.
    """
    if features is None:
        features = Path(torch.hub.get_dir()) / "checkpoints" / CACHED
    if isinstance(features, (str, Path)):
        return _from_weights(Path(features)).to(device, dtype)
    if not isinstance(features, nn.Module):
        raise TypeError(f"expected features to be a module or a path, got {type(features).__name__}")
    layers = getattr(features, "features", features)
    widths = [layer.out_channels for layer in layers.modules() if isinstance(layer, nn.Conv2d)]
    if not isinstance(layers, nn.Sequential) or widths != [width for width in WIDTHS if width]:
        raise ValueError(f"expected the layers of a VGG16, got convolutions of {widths} channels")
    first = next(layers.parameters())
    return layers if (first.dtype, first.device) == (dtype, device) else deepcopy(layers).to(device, dtype)


def stage_features(layers: nn.Sequential, images: Tensor) -> list[Tensor]:
    """Return the images, and the output of each of the five stages of VGG16 before the pooling of the stage.

    Args:
        layers: result of `load_features`. The pooling of DISTS is used instead of the pooling layers of VGG16.
        images: images in [0, 1], shape (N, 3, H, W).

    Returns:
        Six tensors of shape (N, c, h, w) with 3, 64, 128, 256, 512 and 512 channels.
    """
    shift, scale = (images.new_tensor(values)[:, None, None] for values in (MEAN, STD))
    stages, maps = [images], (images - shift) / scale
    for layer in layers:
        if isinstance(layer, nn.MaxPool2d):
            stages.append(maps)
            maps = _l2_pooled(maps)
        else:
            maps = layer(maps)
    return stages if isinstance(layers[-1], nn.MaxPool2d) else [*stages, maps]


def stage_weights(like: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return the weights of DISTS for mean similarity and structure similarity, for each of the six stages.

    All weights together sum to 1.

    Args:
        like: tensor whose precision and device the weights get.
    """
    with np.load(Path(__file__).parent / "data" / "dists_weights.npz") as stored:
        means, structure = (torch.from_numpy(stored[name]).to(like) for name in ("alpha", "beta"))
    total = means.sum() + structure.sum()
    return list(zip((means / total).split(CHANNELS), (structure / total).split(CHANNELS), strict=True))


def _l2_pooled(maps: Tensor) -> Tensor:
    """Return the pooling of DISTS: the root of the Hann-weighted mean of squares in 3 x 3 windows, with stride 2."""
    hann = maps.new_tensor((0.25, 0.5, 0.25))
    kernel = (hann[:, None] * hann).expand(maps.shape[1], 1, 3, 3)
    return conv2d(maps.square(), kernel, stride=2, padding=1, groups=maps.shape[1]).add_(1e-12).sqrt_()


def _from_weights(path: Path) -> nn.Sequential:
    if not path.is_file():
        raise FileNotFoundError(f"no VGG16 weights at {path}; {HOW}")
    layers: list[nn.Module] = []
    channels = 3
    for width in WIDTHS:
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)] if width else [nn.MaxPool2d(2)]
        channels = width or channels
    network = nn.Sequential(*layers).eval().requires_grad_(False)
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of damaged bytes, anything
        raise ValueError(f"expected VGG16 weights in {path}, got a damaged or different file; {HOW}") from error
    prefix = "features." if any(name.startswith("features.") for name in state) else ""
    state = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(f"expected VGG16 weights, got different weights; {HOW}") from error
    return network
