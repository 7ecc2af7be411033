"""Networks that make a perturbation of an image, as attacks that learn once train them, and their weights by name."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # of the images and labels of a batch


class Resized(nn.Module):
    """Enlarges what it is given to the size of a later image, so that images may have any size."""

    def __init__(self, factor: int = 2):
        super().__init__()
        self.factor = factor

    def forward(self, features: Tensor) -> Tensor:
        """Shape (n, c, factor H, factor W)."""
        return functional.interpolate(features, scale_factor=self.factor)


class Sum(nn.Module):
    """A block whose input is added to its output."""

    def __init__(self, *layers: nn.Module):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, features: Tensor) -> Tensor:
        """The shape of the input."""
        return features + self.layers(features)


def fit_size(change: Tensor, inputs: Tensor) -> Tensor:
    """A change cut or enlarged to the size of the images that it is for."""
    size = inputs.shape[-2:]
    return change if change.shape[-2:] == size else functional.interpolate(change, size=size)


def weights_of(**networks: nn.Module) -> dict[str, Tensor]:
    """All numbers of some networks, by "NETWORK.NAME"; counters of batches are left out, nothing depends on them."""
    return {
        f"{title}.{name}": value.detach().clone()
        for title, network in networks.items()
        for name, value in network.state_dict().items()
        if value.is_floating_point()
    }


def load_weights(learned: Mapping[str, Tensor], **networks: nn.Module) -> None:
    """Put the numbers that `weights_of` gave back into networks of the same kind.

    Raises:
        ValueError: if they are of other networks, as those of images of other channels or size are.
    """
    for title, network in networks.items():
        known = {name: value for name, value in network.state_dict().items() if value.is_floating_point()}
        given = {name.removeprefix(f"{title}."): value for name, value in learned.items() if name.startswith(title)}
        shapes = {name: tuple(value.shape) for name, value in known.items()}
        if shapes != {name: tuple(value.shape) for name, value in given.items()}:
            raise ValueError(f"expected the weights of a {title} for images of this shape, got others")
        network.load_state_dict(given, strict=False)


def batches(images: int, epochs: int, size: int, generator: torch.Generator | None = None) -> Iterator[Tensor]:
    """Indices of the batches of a training, shuffled anew in each epoch."""
    for _ in range(epochs):
        yield from torch.randperm(images, generator=generator).split(size)
