"""Local intrinsic dimensionality detector.

It estimates a dimension in each layer from the nearest neighbours of an image.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from ....errors import InvalidInput
from .layer_outputs import watching_layers
from .scorer import ExamplePairs, Scorer

_SMALL = 1e-12
_CHUNK = 64  # images per forward pass, in addition to the reference images


class LocalDimensionality(Scorer):
    """Detector that scores an image by the local intrinsic dimensionality in each layer (Ma et al. 2018).

    The dimension in a layer is estimated from the distances to the nearest images of a fixed set of clean images. (The
    paper uses the images of the same batch.) The score is the log-odds of a logistic regression on the dimensions of
    all layers with weights.

    The regression separates two classes. The positive class has the adversarial images. The negative class has the
    clean images, each without and with noise. The noise has the same mean l2 norm as the attack's perturbations.
    """

    def fit(self, clean: Tensor, labels: Tensor, pairs: ExamplePairs | None) -> None:
        """Store some clean images as reference. Fit the regression on the other clean and the adversarial images."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.preprocessing import StandardScaler

        del labels
        if pairs is None:
            raise ValueError("this detector is fitted on adversarial images, but none were given")
        count = min(self.parameters["reference"], len(clean) // 2)
        if count <= self.parameters["neighbours"]:
            wanted = f"more than {2 * self.parameters['neighbours']} clean images for {self.parameters['neighbours']}"
            raise InvalidInput(f"expected {wanted} neighbours, got {len(clean)}")
        order = torch.randperm(len(clean))
        self._reference, others = clean[order[:count]].cpu(), clean[order[count:]]
        usual = (pairs.adversarial - pairs.originals).flatten(1).norm(dim=1).mean()
        noise = torch.randn_like(others)
        noisy = (others + usual * noise / noise.flatten(1).norm(dim=1).view(-1, 1, 1, 1)).clamp(0, 1)
        normal = self._dimensions(torch.cat([others, noisy]))
        strange = self._dimensions(pairs.adversarial)
        both = torch.cat([normal, strange]).numpy()
        scaler = StandardScaler().fit(both)
        truth = [0] * len(normal) + [1] * len(strange)
        model = LogisticRegression(class_weight="balanced", max_iter=1000).fit(scaler.transform(both), truth)
        weights = torch.from_numpy(model.coef_[0] / scaler.scale_)
        bias = float(model.intercept_[0]) - float((weights * torch.from_numpy(scaler.mean_)).sum())
        self._weights, self._bias = weights.double(), torch.tensor(bias, dtype=torch.float64)

    def score(self, images: Tensor) -> Tensor:
        """Compute scores, shape (N,), float64."""
        return self._dimensions(images) @ self._weights + self._bias

    def state(self) -> dict[str, Tensor]:
        """Return the reference images and the regression."""
        return {"reference": self._reference, "weights": self._weights, "bias": self._bias}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore the reference images and the regression."""
        self._reference, self._weights, self._bias = (state[word] for word in ("reference", "weights", "bias"))

    @torch.no_grad()
    def _dimensions(self, images: Tensor) -> Tensor:
        """Estimate the dimension at each image in each layer, shape (N, layers), float64."""
        reference, parts = self._reference.to(images), []
        for chunk in images.split(_CHUNK):
            layers: list[Tensor] = []

            def note(output: Tensor, count: int = len(chunk), layers: list[Tensor] = layers) -> None:
                layers.append(dimension(output[:count], output[count:], self.parameters["neighbours"]).cpu())

            with watching_layers(self.classifier, note):
                self.classifier(torch.cat([chunk, reference]))
            parts.append(torch.stack(layers, 1))
        return torch.cat(parts)


def dimension(points: Tensor, others: Tensor, neighbours: int) -> Tensor:
    """Compute the maximum likelihood estimate of the local intrinsic dimensionality (Amsaleg et al. 2015).

    The distances to the nearest neighbours are divided by the largest of them. The estimate is minus one over the mean
    of their logarithms. A neighbour at distance 0 is the point itself and is ignored.

    Args:
        points: shape (N, features).
        others: shape (M, features), M > neighbours.
        neighbours: number of neighbours.

    Returns:
        The estimates, shape (N,), float64.
    """
    distances = torch.cdist(points.double(), others.double(), compute_mode="donot_use_mm_for_euclid_dist")
    distances = distances.masked_fill(distances == 0, torch.inf)
    nearest = distances.topk(neighbours, dim=1, largest=False).values.clamp_min(_SMALL)
    return -1 / (nearest / nearest[:, -1:]).log().mean(1).clamp_max(-_SMALL)
