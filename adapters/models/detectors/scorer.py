"""Definition of a detector, and the interface that scores images."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from ...attack import Parameter
from ..classifier import Classifier


@dataclass(frozen=True)
class DetectorSpec:
    """A detector of adversarial images, as listed in the catalogue.

    Args:
        name: usual name of the detector, such as "kernel-density".
        library: library of the implementation, such as "art" in "art:binary-input".
        title: title for display.
        source: the paper.
        build: "module:class" in this package. The class is a `Scorer`.
        module: Python module that must be installed.
        extra: extra of davylamp that installs the module.
        params: parameters by name, with their default values.
        learns_examples: whether the detector is fitted on adversarial images as well as clean ones.
        differentiable: whether the score has gradients with respect to the image, so that an attack can evade it.
        reads_layers: whether the detector reads the model's layers, which is impossible for an isolated model.
        findings: known issues.
    """

    name: str
    library: str
    title: str
    source: str
    build: str
    module: str
    extra: str = ""
    params: Mapping[str, tuple[Parameter, Any]] = field(default_factory=dict)
    learns_examples: bool = False
    differentiable: bool = False
    reads_layers: bool = False
    findings: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """Library and name, such as "art:binary-input"."""
        return f"{self.library}:{self.name}"


class ExamplePairs(NamedTuple):
    """Adversarial images that fool the model and their clean originals, each of shape (M, C, H, W), in [0, 1]."""

    originals: Tensor
    adversarial: Tensor


class Scorer(ABC):
    """A detector bound to a model. It is fitted once and then scores images. A higher score means more adversarial.

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
