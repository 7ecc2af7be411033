"""Feature squeezing detector: compares the outputs for an image with the outputs for a simplified version."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ..defences.defend import defend
from .scorer import ExamplePairs, Scorer


class Squeezing(Scorer):
    """Detector that compares the probabilities for an image with those for simplified versions (Xu et al. 2018, eq. 5).

    The score is the largest l1 distance between the probabilities, in [0, 2]. There are two simplified versions, made
    by ART's bit depth reduction and by ART's median filter. The paper's third method, non-local means, is not included.
    Only the threshold is fitted.
    """

    def fit(self, clean: Tensor, labels: Tensor, pairs: ExamplePairs | None) -> None:
        """Fit nothing. The detector has no parameters that depend on images."""

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
        """Restore nothing. The detector has no state."""
