"""A linear model whose least perturbations are known in closed form: the ground that the contract is tested on."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..models.classifier import Classifier

DUAL = {"linf": 1, "l2": 2, "l1": float("inf")}


class LinearCase(NamedTuple):
    """A linear model on (n, 3, 8, 8) grey-ish images, the box far away, and each image's least perturbation."""

    module: nn.Module
    inputs: Tensor
    labels: Tensor
    least: dict[str, Tensor]

    @property
    def classifier(self) -> Classifier:
        """The model as an attack sees it."""
        return Classifier(self.module)


def make_linear_case() -> LinearCase:
    """Four classes; the least perturbation to class k is (z_y - z_k) / |w_y - w_k| in the dual norm.

    The weights are large so that cross-entropy follows the nearest competitor instead of the mean of all three.
    """
    generator = torch.Generator().manual_seed(1)
    layer = nn.Linear(192, 4)
    layer.weight.data = 100 * torch.randn(4, 192, generator=generator)
    inputs = 0.5 + 0.02 * torch.randn(4, 3, 8, 8, generator=generator)
    layer.bias.data = -(layer.weight.data @ inputs.flatten(1).mean(0))
    module = nn.Sequential(nn.Flatten(), layer).eval().requires_grad_(False)
    logits = module(inputs)
    labels = logits.argmax(1)
    weight = layer.weight.data
    least = {}
    for norm, dual in DUAL.items():
        gaps = logits.gather(1, labels[:, None]) - logits
        sizes = torch.linalg.vector_norm(weight[labels][:, None] - weight, ord=dual, dim=2)
        least[norm] = (gaps / sizes.clamp(min=1e-12)).masked_fill(gaps == 0, float("inf")).amin(1)
    return LinearCase(module, inputs, labels, least)
