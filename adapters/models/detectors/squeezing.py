"""Feature squeezing as a detector: the change of the outputs when the image gets fewer bits or is smoothed."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ..defences.defend import defend
from .scorer import ExamplePairs, Scorer


class Squeezing(Scorer):
    """The largest l1 distance between the probabilities for an image and for a squeezed one (Xu et al. 2018, eq. 5).

    The squeezers are ART's bit depth and median filter, as in the defences with these names. The paper's third
    squeezer, non-local means, is not included. Scores are in [0, 2]. Only the threshold is calibrated.
    """

    def fit(self, clean: Tensor, labels: Tensor, pairs: ExamplePairs | None) -> None:
        """Do nothing: the detector has no parameters to fit."""

    @torch.no_grad()
    def score(self, images: Tensor) -> Tensor:
        """Compute scores, shape (N,), float64."""
        answers = self.classifier.predict_logits(images).double().softmax(1)
        names = (f"art:bit-depth:bits={self.parameters['bits']}", f"art:median:window={self.parameters['window']}")
        moved = [
            (defend(self.classifier, name).predict_logits(images).double().softmax(1) - answers).abs().sum(1)
            for name in names
        ]
        return torch.stack(moved).amax(0).cpu()

    def state(self) -> dict[str, Tensor]:
        """Return an empty state."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Do nothing."""
