"""Building blocks of the networks that generate perturbations in fitted attacks, and storage of their weights."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # of the images and labels of a batch


class Resized(nn.Module):
    """Layer that enlarges features by a factor."""

    def __init__(self, factor: int = 2):
        super().__init__()
        self.factor = factor

    def forward(self, features: Tensor) -> Tensor:
        """Return the enlarged features, shape (n, c, factor H, factor W)."""
        return functional.interpolate(features, scale_factor=self.factor)


class Sum(nn.Module):
    """Residual block that adds its input to its output."""

    def __init__(self, *layers: nn.Module):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, features: Tensor) -> Tensor:
        """Return the input plus the output of the layers, in the shape of the input."""
        return features + self.layers(features)


def fit_size(change: Tensor, inputs: Tensor) -> Tensor:
    """Resize a perturbation to the size of the images."""
    size = inputs.shape[-2:]
    return change if change.shape[-2:] == size else functional.interpolate(change, size=size)


def weights_of(**networks: nn.Module) -> dict[str, Tensor]:
    """Return the weights of several networks by the names "NETWORK.WEIGHT", without the counters of batch norms."""
    return {
        f"{title}.{name}": value.detach().clone()
        for title, network in networks.items()
        for name, value in network.state_dict().items()
        if value.is_floating_point()
    }


def load_weights(learned: Mapping[str, Tensor], **networks: nn.Module) -> None:
    """Load weights that were returned by `weights_of` into networks of the same kind.

    Raises:
        ValueError: if the shapes of weights and networks differ, for example because the image size differs.
    """
    for title, network in networks.items():
        known = {name: value for name, value in network.state_dict().items() if value.is_floating_point()}
        given = {name.removeprefix(f"{title}."): value for name, value in learned.items() if name.startswith(title)}
        shapes = {name: tuple(value.shape) for name, value in known.items()}
        if shapes != {name: tuple(value.shape) for name, value in given.items()}:
            raise ValueError(f"expected weights of a {title} for images of this shape, got weights of different shapes")
        network.load_state_dict(given, strict=False)


def batches(images: int, epochs: int, size: int, generator: torch.Generator | None = None) -> Iterator[Tensor]:
    """Yield the image indices of each training batch. The images are shuffled in each epoch."""
    for _ in range(epochs):
        yield from torch.randperm(images, generator=generator).split(size)
