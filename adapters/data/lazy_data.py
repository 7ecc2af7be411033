"""Labelled images, in memory or decoded when they are taken."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor


class Data(NamedTuple):
    """Labelled images in the form that every attack expects.

    Args:
        inputs: in [0, 1], float32, shape (N, C, H, W).
        labels: int64, shape (N,).
        names: for each image, the name of its file, or its index in an array file.
    """

    inputs: Tensor
    labels: Tensor
    names: list[str]

    def take(self, places: Sequence[int]) -> "Data":
        """Return the images at these places, in their order."""
        return Data(self.inputs[places], self.labels[places], [self.names[place] for place in places])


class LazyData(NamedTuple):
    """Labelled images that are converted, and read from image files, only when they are taken.

    Args:
        labels: int64, shape (N,).
        names: see `Data`.
        read: returns the images at some places, or all for None, as `Data.inputs`.
    """

    labels: Tensor
    names: list[str]
    read: Callable[[Sequence[int] | None], Tensor]

    def take(self, places: Sequence[int] | None = None) -> Data:
        """Return the images at these places, in their order; all for None.

        Raises:
            DavylampError: if an image cannot be read, or is not valid.
        """
        inputs = self.read(places)
        if places is None:
            return Data(inputs, self.labels, self.names)
        places = list(places)
        return Data(inputs, self.labels[places], [self.names[place] for place in places])
