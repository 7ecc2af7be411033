"""Feature squeezing detector: how much the outputs change when the image is smoothed or gets fewer bits."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ..defences.defend import defend
from .scorer import ExamplePairs, Scorer


class Squeezing(Scorer):
    """Detector that compares the probabilities for an image with those for squeezed versions (Xu et al. 2018, eq. 5).

    The score is the largest l1 distance, in [0, 2]. The squeezers are ART's bit depth reduction and median filter, as
    in the defences with these names. The paper's third squeezer, non-local means, is not included. There is nothing to
    fit except the threshold.
    """

    def fit(self, clean: Tensor, labels: Tensor, pairs: ExamplePairs | None) -> None:
        """Do nothing, because the detector has no parameters to fit."""

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
