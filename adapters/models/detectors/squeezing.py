"""Feature squeezing as a detector: how far the answer moves when the image has fewer bits or is smoothed."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ..defences.defend import defend
from .scorer import ExamplePairs, Scorer


class Squeezing(Scorer):
    """The largest l1 distance between the probabilities for an image and for a squeezed one (Xu et al. 2018, eq. 5).

    The squeezers are ART's bit depth and median filter, as the defences of these names. In [0, 2]; nothing is learned
    but where to draw the line. Of the paper's third squeezer, non-local means, nothing is here.
    """

    def fit(self, clean: Tensor, labels: Tensor, pairs: ExamplePairs | None) -> None:
        """Nothing to learn."""

    @torch.no_grad()
    def score(self, images: Tensor) -> Tensor:
        """Shape (N,), float64."""
        answers = self.classifier.predict_logits(images).double().softmax(1)
        names = (f"art:bit-depth:bits={self.parameters['bits']}", f"art:median:window={self.parameters['window']}")
        moved = [
            (defend(self.classifier, name).predict_logits(images).double().softmax(1) - answers).abs().sum(1)
            for name in names
        ]
        return torch.stack(moved).amax(0).cpu()

    def state(self) -> dict[str, Tensor]:
        """Nothing."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Nothing to take."""
