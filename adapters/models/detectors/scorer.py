"""What a detector is to davylamp: a row in the catalogue, and a score for every image."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from ...attack import Parameter
from ..classifier import Classifier


@dataclass(frozen=True)
class DetectorSpec:
    """A way to tell adversarial images from clean ones beside a model.

    Args:
        name: what the field calls it, "kernel-density".
        library: whose code scores; the detector is called "art:binary-input".
        title: for people.
        source: the paper.
        build: "module:class" in this package: a `Scorer`.
        module: that has to be installed for it.
        extra: of davylamp, which installs that.
        params: its parameters by name, with the value that each has if nobody says.
        learns_examples: whether it has to be shown adversarial images; the others learn from clean ones alone.
        differentiable: whether its score has gradients with regard to the image, so that an attack can go around it.
        reads_layers: whether it needs to see the layers of the model, which nobody can of one that is isolated.
        findings: what is known of it.
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
        """Library and name, "art:binary-input"."""
        return f"{self.library}:{self.name}"


class ExamplePairs(NamedTuple):
    """Images that fool the model and what they were made of, each of shape (M, C, H, W), in [0, 1]."""

    originals: Tensor
    adversarial: Tensor


class Scorer(ABC):
    """A detector that is bound to a model: it learns once, and scores images; higher is more adversarial.

    Args:
        classifier: the model beside which it stands; frozen.
        **parameters: of its row.
    """

    def __init__(self, classifier: Classifier, **parameters: Any):
        self.classifier, self.parameters = classifier, parameters

    @abstractmethod
    def fit(self, clean: Tensor, labels: Tensor, pairs: ExamplePairs | None) -> None:
        """Learn; random numbers are those of the global generators, which the caller seeds.

        Args:
            clean: images in [0, 1], shape (N, C, H, W).
            labels: theirs, int64, shape (N,).
            pairs: adversarial images, for a detector that learns them.
        """

    @abstractmethod
    def score(self, images: Tensor) -> Tensor:
        """Scores, float64, shape (N,), of images (N, C, H, W) in [0, 1]."""

    def score_with_gradients(self, images: Tensor) -> Tensor:
        """The same with gradients, shape (N,), of a differentiable detector."""
        raise NotImplementedError(f"{type(self).__name__} has no gradients")

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """All that was learned."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take what was learned."""
