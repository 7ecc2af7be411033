"""Kernel density detector: compares an image with clean images of the predicted class, in the last hidden layer."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ....errors import InvalidInput
from .layer_outputs import activations_of, collect_activations
from .scorer import ExamplePairs, Scorer

_GRID = 24  # number of bandwidths tried, from 0.1 to 10 times the median nearest distance per feature


class KernelDensity(Scorer):
    """Detector whose score is minus the logarithm of a Gaussian kernel density (Feinman et al. 2017, section 4.1).

    The density is estimated from the activations of clean training images of the predicted class.
    """

    def fit(self, clean: Tensor, labels: Tensor, pairs: ExamplePairs | None) -> None:
        """Store the activations of correctly classified images by class, and select the bandwidth."""
        del pairs
        logits = self.classifier.predict_logits(clean).cpu()
        right = (logits.argmax(1) == labels.cpu()) & logits.isfinite().all(1)
        self._points = collect_activations(self.classifier, clean[right], self.parameters["layer"]).double()
        self._classes = labels.cpu()[right]
        counts = torch.bincount(self._classes, minlength=self.classifier.num_classes or 0)
        if (counts < 2).any():
            least = f"{int(counts.min())} of class {int(counts.argmin())}"
            raise InvalidInput(f"expected at least 2 correctly classified images of each class, got {least}")
        given = self.parameters["bandwidth"]
        self._bandwidth = torch.tensor(given or self._likeliest_bandwidth(), dtype=torch.float64)

    @torch.no_grad()
    def score(self, images: Tensor) -> Tensor:
        """Compute scores, shape (N,), float64."""
        return torch.cat([self.score_with_gradients(part).cpu() for part in images.split(64)])

    def score_with_gradients(self, images: Tensor) -> Tensor:
        """Compute scores with gradients, shape (N,). The choice of the predicted class has no gradient.

        A score is NaN if a logit of its image is not finite.
        """
        seen = activations_of(self.classifier, images, self.parameters["layer"]).double()
        logits = self.classifier(images).detach()
        predicted = logits.argmax(1)
        points, classes = self._points.to(seen.device), self._classes.to(seen.device)
        squares = (seen[:, None] - points[None]).square().sum(2) if seen.requires_grad else _squares(seen, points)
        squares = squares.masked_fill(classes[None] != predicted[:, None], math.inf)
        counts = torch.bincount(classes, minlength=int(predicted.max()) + 1)[predicted]
        scores = -_log_density(squares, self._bandwidth.to(seen.device), counts.double(), seen.shape[1])
        return scores.where(logits.isfinite().all(1), math.nan)

    def state(self) -> dict[str, Tensor]:
        """Return the activations, their classes, and the bandwidth."""
        return {"points": self._points, "classes": self._classes, "bandwidth": self._bandwidth}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore the activations, classes and bandwidth on the model's device."""
        there = (state[word].to(self.classifier.device) for word in ("points", "classes", "bandwidth"))
        self._points, self._classes, self._bandwidth = there

    def _likeliest_bandwidth(self) -> float:
        """Return the bandwidth that maximises the leave-one-out likelihood of the activations within their classes."""
        squares = _squares(self._points, self._points)
        squares = squares.masked_fill(self._classes[:, None] != self._classes[None], math.inf)
        squares.fill_diagonal_(math.inf)
        usual = float(squares.amin(1).sqrt().median()) / math.sqrt(self._points.shape[1])  # per feature
        others = (torch.bincount(self._classes)[self._classes] - 1).double()
        grid = torch.logspace(-1, 1, _GRID, dtype=torch.float64) * max(usual, 1e-9)
        scores = [float(_log_density(squares, h, others, self._points.shape[1]).mean()) for h in grid]
        return float(grid[max(range(_GRID), key=scores.__getitem__)])


def _squares(first: Tensor, second: Tensor) -> Tensor:
    return torch.cdist(first, second, compute_mode="donot_use_mm_for_euclid_dist").square()


def _log_density(squares: Tensor, bandwidth: Tensor, counts: Tensor, features: int) -> Tensor:
    """Compute the logarithm of a kernel density: the mean of normal densities around the reference points.

    Args:
        squares: squared distances from N points to M reference points, shape (N, M). inf for reference points to
            ignore.
        bandwidth: standard deviation of the kernel.
        counts: number of reference points of each point, shape (N,).
        features: dimension of the points.
    """
    scale = features * (bandwidth.log() + 0.5 * math.log(2 * math.pi))
    return (-squares / (2 * bandwidth.square())).logsumexp(1) - counts.log() - scale
