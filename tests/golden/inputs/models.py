"""The models of the golden corpus: two networks with stored weights, and what can be wrong with one."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from davylamp.adapters import Classifier


def _stored(name: str, network: nn.Sequential) -> nn.Sequential:
    with np.load(Path(__file__).parent / "weights.npz") as arrays:
        network.load_state_dict({key: torch.from_numpy(arrays[f"{name}.{key}"]) for key in network.state_dict()})
    return network.eval()


def make_cnn() -> nn.Sequential:
    """Two convolutions: right on most digits."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(6, 12, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(192, 10),
    )


def make_mlp() -> nn.Sequential:
    """One hidden layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))


def make_two() -> nn.Sequential:
    """Whether a digit is 5 or more, as one logit."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 1))


def cnn() -> nn.Module:
    """An honest network."""
    return _stored("cnn", make_cnn())


def mlp() -> nn.Module:
    """Another."""
    return _stored("mlp", make_mlp())


def two() -> nn.Module:
    """One of two classes, by one logit."""
    return Classifier(_stored("two", make_two()), outputs="logit")


def large() -> nn.Module:
    """Of images four times as large, as the corruptions want them."""
    return nn.Sequential(nn.AvgPool2d(4), cnn())


def large_mlp() -> nn.Module:
    """Another."""
    return nn.Sequential(nn.AvgPool2d(4), mlp())


def labels() -> nn.Module:
    """The network, which says its label alone."""
    return Classifier(_Labels(cnn()), outputs="labels")


def noisy() -> nn.Module:
    """Random by declaration."""
    return Classifier(_Noisy(cnn()), random=True)


def unsteady() -> nn.Module:
    """Random without a word."""
    return _Noisy(cnn())


def unsure() -> nn.Module:
    """NaN wherever the network is unsure."""
    return _Unsure(cnn())


def no_slope() -> nn.Module:
    """The same function with NaN in the gradient of every black pixel."""
    return _NoSlope(cnn())


class _Around(nn.Module):
    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network


class _Labels(_Around):
    def forward(self, inputs):
        return self.network(inputs).argmax(1)


class _Noisy(_Around):
    def forward(self, inputs):
        return self.network(inputs + 0.15 * torch.randn_like(inputs))


class _Unsure(_Around):
    def forward(self, inputs):
        logits = self.network(inputs)
        return logits.where((logits.softmax(1).amax(1) >= 0.4)[:, None], torch.nan)


class _NoSlope(_Around):
    def forward(self, inputs):
        return self.network(inputs.sqrt() ** 2)
