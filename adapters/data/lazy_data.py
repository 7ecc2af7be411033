"""Types of labelled images: `Data` for images in memory, and `LazyData` for images that are read later."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor


class Data(NamedTuple):
    """Labelled images in the form that every attack expects.

    Args:
        inputs: images in [0, 1], float32, shape (N, C, H, W).
        labels: ground truth, int64, shape (N,).
        names: for each image, the name of its file, or its index in an array file.
    """

    inputs: Tensor
    labels: Tensor
    names: list[str]

    def take(self, places: Sequence[int]) -> "Data":
        """Return the images with the indices `places`, in this order."""
        return Data(self.inputs[places], self.labels[places], [self.names[place] for place in places])


class LazyData(NamedTuple):
    """Labelled images that are read from files and converted only when `take` is called.

    Args:
        labels: ground truth, int64, shape (N,).
        names: names of the images, see `Data`.
        read: function that returns the images with the given indices in the form of `Data.inputs`. For None, it returns
            all images.
    """

    labels: Tensor
    names: list[str]
    read: Callable[[Sequence[int] | None], Tensor]

    def take(self, places: Sequence[int] | None = None) -> Data:
        """Read and return the images with the indices `places`, in this order. None for all images.

        Raises:
            DavylampError: if an image cannot be read, or is not valid.
        """
        inputs = self.read(places)
        if places is None:
            return Data(inputs, self.labels, self.names)
        places = list(places)
        return Data(inputs, self.labels[places], [self.names[place] for place in places])
