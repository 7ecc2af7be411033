"""Whoever reads a layer's output reads that of all images, in however many passes they go through the model."""

import pytest
import torch
from torch import nn

from davylamp.adapters import Classifier
from davylamp.benchmarks.aisafety.coverage import read_activations
from davylamp.metrics import grad_cam

IMAGES = 130  # two whole passes of 64, and two more images


class InPasses(nn.Module):
    """The same model; it takes its images so many at a time."""

    def __init__(self, model: nn.Module, size: int):
        super().__init__()
        self.model, self.size = model, size

    def forward(self, inputs):
        return torch.cat([self.model(part) for part in inputs.split(self.size)])


@pytest.fixture(scope="module")
def many(digits):
    return digits.inputs.repeat(9, 1, 1, 1)[:IMAGES] * torch.linspace(0.5, 1, IMAGES)[:, None, None, None]


@pytest.mark.parametrize("size", [IMAGES, 64, 7])
def test_activations_are_those_of_all_images_in_order(digits, many, size):
    net, activations = digits.module, read_activations(Classifier(InPasses(digits.module, size)), many)
    values, expected = many, []
    with torch.no_grad():
        for layer in net:
            values = layer(values)
            expected += [values.flatten(1)] if isinstance(layer, nn.ReLU) else []
    assert [each.shape for each in activations] == [each.shape for each in expected]
    for each, truth in zip(activations, expected, strict=True):
        torch.testing.assert_close(each, truth)


def test_a_layer_that_runs_now_and_then_is_refused():
    class Twice(nn.Module):
        """Its ReLU runs again for the brighter images alone."""

        def __init__(self):
            super().__init__()
            self.relu, self.last = nn.ReLU(), nn.Linear(4, 3)

        def forward(self, inputs):
            flat = self.relu(inputs.flatten(1))
            self.relu(flat[flat.mean(1) > 0.5])
            return self.last(flat)

    model = Classifier(Twice(), num_classes=3)
    with pytest.raises(ValueError, match="each ReLU to run equally often"):
        read_activations(model, torch.tensor([0.1, 0.2, 0.9]).view(3, 1, 1, 1).expand(3, 1, 2, 2))


def test_maps_of_a_model_that_splits_its_images_are_those_of_the_model(digits, many):
    layer = next(part for part in digits.module if isinstance(part, nn.Conv2d))
    classes = torch.arange(IMAGES)[:, None] % torch.tensor([10, 7])
    whole = grad_cam(digits.module, many, classes, layer=layer)
    split = grad_cam(InPasses(digits.module, 9), many, classes, layer=layer)
    assert whole.shape == (IMAGES, 2, *whole.shape[2:])
    torch.testing.assert_close(split, whole)
