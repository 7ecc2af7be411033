"""Small undefended and defended models of scikit-learn's digits, which replace the CIFAR-10 and SVHN models of papers.

All models have the same convolutional network for images of 3 x 32 x 32, and are trained with the loop of `davylamp
harden` at the linf radius 0.1. The training methods are standard training, PGD (Madry et al. 2018), TRADES (Zhang et
al. 2019, beta 6), and methods of single papers. The model "inception" is a different, undefended network with one block
of parallel convolutions (Szegedy et al. 2015), which serves as a surrogate. Run as a program, this module trains the
models in `TRAININGS`.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...adapters import Classifier
from ...adapters.data.bundled_images import TRAINED_ON, read_digits
from ...adapters.data.datasets import Data
from ...adapters.models.zoo.demo import digits_network
from ...engine.training.loop import train
from ...engine.training.methods import make_settings
from ...engine.training.settings import TrainingSettings
from ...engine.training.student import TrainableModel

EPSILON = 0.1
SURROGATE = "inception"
TRAININGS: Mapping[str, str] = {"standard": "natural", "pgd-training": "pgd", "trades": "trades"}
MORE_TRAININGS: Mapping[str, str] = {  # methods of single papers
    "fgsm-training": "fgsm",
    "least-likely-training": "least-likely",
    "mart": "mart",
    "noise-training": "natural-noise",
}
_ASCENT: Mapping[str, Mapping[str, Any]] = {
    "standard": {},
    "pgd-training": {"steps": 5, "start": "gaussian"},
    "trades": {"steps": 5, "beta": 6.0},
    "mart": {"steps": 5, "beta": 6.0},
}


def load_digits_data(count: int | None = None) -> Data:
    """Return the digits on which no model was trained, as 397 colour images of 32 x 32 in [0, 1].

    Args:
        count: number of images to return, from the beginning. None for all.
    """
    inputs, labels = _digits()
    inputs, labels = inputs[TRAINED_ON:][:count].contiguous(), labels[TRAINED_ON:][:count]
    return Data(inputs, labels, [f"digit_{TRAINED_ON + i}" for i in range(len(labels))])


def load_training_inputs() -> Tensor:
    """Return the images of digits on which the models were trained, shape (1400, 3, 32, 32)."""
    return _digits()[0][:TRAINED_ON].contiguous()


def small_models() -> dict[str, Classifier]:
    """Return the models in `TRAININGS` by name. Models that are not in the cache are trained."""
    return {name: load_small_model(name) for name in TRAININGS}


def load_small_model(name: str) -> Classifier:
    """Return the small model with a given name. The first call trains the model; later calls read it from a cache.

    Args:
        name: name in `TRAININGS` or `MORE_TRAININGS`, or "inception".
    """
    file = _cache() / f"{name}-{_digest()}.pt"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net: nn.Module = _inception() if name == SURROGATE else digits_network(channels=3)
        if file.is_file():
            net.load_state_dict(torch.load(file, weights_only=True))
        else:
            student = TrainableModel(Classifier(net))
            train(student, *(part[:TRAINED_ON] for part in _digits()), _training(name))
            net = student.model
            file.parent.mkdir(parents=True, exist_ok=True)
            draft = file.with_suffix(f".{os.getpid()}")
            torch.save(net.state_dict(), draft)
            draft.replace(file)
    return Classifier(net, num_classes=10, name=f"digits:{name}")


class _Parallel(nn.Module):
    """A block of parallel convolutions of several sizes, whose output channels are concatenated."""

    def __init__(self, channels: int, each: int):
        super().__init__()
        sizes = (1, 3, 5)
        self.branches = nn.ModuleList(nn.Conv2d(channels, each, size, padding=size // 2) for size in sizes)
        self.pooled = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), nn.Conv2d(channels, each, 1))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the concatenated outputs, shape (N, 4 * each, H, W), of an input of shape (N, channels, H, W)."""
        return torch.cat([*(branch(inputs) for branch in self.branches), self.pooled(inputs)], 1)


def _inception() -> nn.Sequential:
    first = nn.Conv2d(3, 16, 3, stride=2, padding=1)
    last = nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(768, 10)
    return nn.Sequential(first, nn.ReLU(), _Parallel(16, 12), nn.ReLU(), *last)


def _training(name: str) -> TrainingSettings:
    numbers = {"epochs": 8, "batch_size": 100, "learning_rate": 3e-3, "optimiser": "adam", "schedule": "constant"}
    method = {**TRAININGS, **MORE_TRAININGS, SURROGATE: "natural"}[name]
    return make_settings(method, "linf", EPSILON, {**numbers, "weight_decay": 0.0, **_ASCENT.get(name, {})})


def _digits() -> tuple[Tensor, Tensor]:
    images, labels = read_digits()
    return images.expand(-1, 3, -1, -1).contiguous(), labels


def _digest() -> str:
    """Return a hash that changes if a cached model could be different: of the code, the digits and torch's version."""
    root = Path(__file__).parents[2]
    parts = (root / "adapters" / "models" / "zoo" / "demo.py", root / "adapters" / "data" / "bundled_images.py")
    files = [Path(__file__), *parts, *sorted((root / "engine" / "training").glob("*.py"))]
    code = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(code + torch.__version__.encode()).hexdigest()[:12]


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "davylamp" / "small_models"


if __name__ == "__main__":
    data = load_digits_data()
    for model_name, model in small_models().items():
        accuracy = (model.predict_logits(data.inputs).argmax(1) == data.labels).double().mean()
        print(f"{model_name}: accuracy {accuracy:.3f} on {len(data.labels)} digits")
