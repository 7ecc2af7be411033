"""A linear model for the contract checks, whose least perturbations have a closed form."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..models.classifier import Classifier

_COUNTING = 6  # components of the coarse case that have a weight
DUAL = {"linf": 1, "l2": 2, "l1": float("inf")}


class ContractCase(NamedTuple):
    """A model, images (n, C, H, W) that it classifies correctly, and the least perturbation of each image, by norm."""

    module: nn.Module
    inputs: Tensor
    labels: Tensor
    least: Mapping[str, Tensor] = {}

    @property
    def classifier(self) -> Classifier:
        """The model as a `Classifier`."""
        return Classifier(self.module)

    def first(self, count: int) -> "ContractCase":
        """Return the case restricted to its first `count` images."""
        least = {norm: sizes[:count] for norm, sizes in self.least.items()}
        return ContractCase(self.module, self.inputs[:count], self.labels[:count], least)


def make_linear_case() -> ContractCase:
    """Build a linear case with four classes. Its images of 3 x 8 x 8 are far from the bounds of [0, 1].

    The weights are large, so the cross-entropy depends mostly on the nearest other class.
    """
    generator = torch.Generator().manual_seed(1)
    layer = nn.Linear(192, 4)
    layer.weight.data = 100 * torch.randn(4, 192, generator=generator)
    inputs = 0.5 + 0.02 * torch.randn(4, 3, 8, 8, generator=generator)
    layer.bias.data = -(layer.weight.data @ inputs.flatten(1).mean(0))
    return _case(layer, inputs)


def make_coarse_case() -> ContractCase:
    """Build a case for attacks that move in 8-bit grey levels. The least linf perturbations are five to twenty levels.

    Few components have nonzero weights, so that a random search over grey levels finds an example.
    """
    generator = torch.Generator().manual_seed(1)
    layer = nn.Linear(192, 4)
    layer.weight.data = 50 * torch.randn(4, 192, generator=generator)
    layer.weight.data[:, _COUNTING:] = 0
    inputs = 0.5 + 0.1 * layer.weight.data.sign().view(4, 3, 8, 8)
    layer.bias.data = -(layer.weight.data @ inputs.flatten(1).mean(0))
    return _case(layer, inputs)


def _case(layer: nn.Linear, inputs: Tensor) -> ContractCase:
    """Build a case from a linear layer and images, and compute the labels and least perturbations.

    The least perturbation to class k is (z_y - z_k) / |w_y - w_k|, with the dual norm of the weights.
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
