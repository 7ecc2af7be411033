"""A linear model for the contract checks. The smallest adversarial perturbations are known from a formula."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..models.classifier import Classifier

_COUNTING = 6  # components of the coarse case that have a weight
DUAL = {"linf": 1, "l2": 2, "l1": float("inf")}


class ContractCase(NamedTuple):
    """A model with images, on which the contract of an attack is checked.

    The model classifies the images, shape (n, C, H, W), correctly. `least` has the size of the smallest adversarial
    perturbation of each image, shape (n,), by norm.
    """

    module: nn.Module
    inputs: Tensor
    labels: Tensor
    least: Mapping[str, Tensor] = {}

    @property
    def classifier(self) -> Classifier:
        """The model as a `Classifier`."""
        return Classifier(self.module)

    def first(self, count: int) -> "ContractCase":
        """Return the case with only its first `count` images."""
        least = {norm: sizes[:count] for norm, sizes in self.least.items()}
        return ContractCase(self.module, self.inputs[:count], self.labels[:count], least)


def make_linear_case() -> ContractCase:
    """Build a linear model with four classes and images of 3 x 8 x 8 pixels.

    The pixels are far from 0 and 1. The weights are large, so that the cross-entropy depends mostly on the nearest
    other class.
    """
    generator = torch.Generator().manual_seed(1)
    layer = nn.Linear(192, 4)
    layer.weight.data = 100 * torch.randn(4, 192, generator=generator)
    inputs = 0.5 + 0.02 * torch.randn(4, 3, 8, 8, generator=generator)
    layer.bias.data = -(layer.weight.data @ inputs.flatten(1).mean(0))
    return _case(layer, inputs)


def make_coarse_case() -> ContractCase:
    """Build a linear model with images for attacks that change pixels by whole 8-bit grey levels.

    The smallest adversarial linf perturbations are five to twenty grey levels. Only few components have nonzero
    weights, so that even a random search finds an example.
    """
    generator = torch.Generator().manual_seed(1)
    layer = nn.Linear(192, 4)
    layer.weight.data = 50 * torch.randn(4, 192, generator=generator)
    layer.weight.data[:, _COUNTING:] = 0
    inputs = 0.5 + 0.1 * layer.weight.data.sign().view(4, 3, 8, 8)
    layer.bias.data = -(layer.weight.data @ inputs.flatten(1).mean(0))
    return _case(layer, inputs)


def _case(layer: nn.Linear, inputs: Tensor) -> ContractCase:
    """Build a case from a linear layer and images, and compute the labels and the smallest adversarial perturbations.

    The smallest perturbation that leads to class k has the size (z_y - z_k) / |w_y - w_k|. The norm of the weights is
    the dual norm.
    """
    module = nn.Sequential(nn.Flatten(), layer).eval().requires_grad_(False)
    logits = module(inputs)
    labels = logits.argmax(1)
    weight = layer.weight.data
    least = {}
    for norm, dual in DUAL.items():
        gaps = logits.gather(1, labels[:, None]) - logits
        sizes = torch.linalg.vector_norm(weight[labels][:, None] - weight, ord=dual, dim=2)
        least[norm] = (gaps / sizes.clamp(min=1e-12)).masked_fill(gaps == 0, float("inf")).amin(1)
    return ContractCase(module, inputs, labels, least)
