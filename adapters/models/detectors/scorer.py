"""Definition of a detector in the catalogue, and the interface of detectors that score images."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from ..classifier import Classifier
from ..component import Component


@dataclass(frozen=True)
class DetectorSpec(Component):
    """A detector of adversarial images in the catalogue.

    Its `build` makes a `Scorer` from the classifier and the parameters.

    Args:
        learns_examples: whether the detector is fitted on adversarial images as well as clean ones.
        differentiable: whether the score has gradients with respect to the image. An attack can then evade the
            detector.
        reads_layers: whether the detector reads the model's layers. This is impossible for an isolated model.
    """

    learns_examples: bool = False
    differentiable: bool = False
    reads_layers: bool = False


class ExamplePairs(NamedTuple):
    """Adversarial images that fool the model and their clean originals, each of shape (M, C, H, W), in [0, 1]."""

    originals: Tensor
    adversarial: Tensor


class Scorer(ABC):
    """A detector bound to a model. It is fitted once and then scores images.

    A higher score means that an image is more likely adversarial.

    Args:
        classifier: the model, frozen.
        **parameters: parameters of the detector.
    """

    def __init__(self, classifier: Classifier, **parameters: Any):
        self.classifier, self.parameters = classifier, parameters

    @abstractmethod
    def fit(self, clean: Tensor, labels: Tensor, pairs: ExamplePairs | None) -> None:
        """Fit the detector. It draws random numbers from the global generators, which the caller seeds.

        Args:
            clean: images in [0, 1], shape (N, C, H, W).
            labels: labels of the clean images, int64, shape (N,).
            pairs: adversarial images with their originals, if the detector is fitted on them.
        """

    @abstractmethod
    def score(self, images: Tensor) -> Tensor:
        """Compute scores, float64, shape (N,), of images (N, C, H, W) in [0, 1]."""

    def score_with_gradients(self, images: Tensor) -> Tensor:
        """Compute scores with gradients, shape (N,), for a differentiable detector."""
        raise NotImplementedError(f"{type(self).__name__} has no gradients")

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Return the fitted state as tensors by name."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore a fitted state."""
