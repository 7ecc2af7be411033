"""ART's detectors of adversarial images, each bound to a davylamp classifier."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..classifier import PASS_SIZE
from .layer_outputs import activations_of, collect_activations
from .scorer import ExamplePairs, Scorer


class _BinaryNetwork(Scorer):
    """A network with two outputs, clean and adversarial, trained by ART. The score is the second minus the first."""

    network: nn.Module

    def fit(self, clean: Tensor, labels: Tensor, pairs: ExamplePairs | None) -> None:
        del labels
        if pairs is None:
            raise ValueError("this detector is fitted on adversarial images, but none were given")
        given = self._look_at(torch.cat([clean, pairs.adversarial]))
        truth = np.repeat([0, 1], [len(clean), len(pairs.adversarial)])
        self.network = self._make(given.shape[1]).to(self.classifier.device)
        self.detector().fit(given.numpy(), truth, self.parameters["batch_size"], self.parameters["epochs"])
        self.network.eval().requires_grad_(False)

    def detector(self) -> Any:
        raise NotImplementedError

    def score(self, images: Tensor) -> Tensor:
        """Compute the adversarial output minus the clean output, with ART's `detect`."""
        report, _ = self.detector().detect(self._look_at(images).numpy(), batch_size=PASS_SIZE)
        outputs = torch.from_numpy(np.asarray(report["predictions"], dtype=np.float64))
        return outputs[:, 1] - outputs[:, 0]

    def score_with_gradients(self, images: Tensor) -> Tensor:
        outputs = self.network(self._see(images))
        return outputs[:, 1] - outputs[:, 0]

    def state(self) -> dict[str, Tensor]:
        return dict(self.network.state_dict())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.network = self._make(state["0.weight"].shape[1]).to(self.classifier.device)
        self.network.load_state_dict(dict(state))
        self.network.eval().requires_grad_(False)

    def _as_art(self, network: nn.Module, shape: tuple[int, ...]) -> Any:
        from art.estimators.classification import PyTorchClassifier

        device = "cpu" if self.classifier.device.type == "cpu" else "gpu"
        rate = self.parameters["learning_rate"]
        learning = [p for p in network.parameters() if p.requires_grad]
        optimiser = torch.optim.Adam(learning, rate) if learning else None
        return PyTorchClassifier(network, nn.CrossEntropyLoss(), shape, 2, optimizer=optimiser, device_type=device)

    def _look_at(self, images: Tensor) -> Tensor:
        raise NotImplementedError

    def _see(self, images: Tensor) -> Tensor:
        raise NotImplementedError

    def _make(self, width: int) -> nn.Module:
        raise NotImplementedError


class BinaryInput(_BinaryNetwork):
    """ART's `BinaryInputDetector`, a small convolutional network on the image."""

    def detector(self) -> Any:
        """Build ART's detector around the network."""
        from art.defences.detector.evasion import BinaryInputDetector

        return BinaryInputDetector(self._as_art(self.network, (self.network[0].in_channels, 1, 1)))  # type: ignore[index]

    def _look_at(self, images: Tensor) -> Tensor:
        return images.detach().float().cpu()

    def _see(self, images: Tensor) -> Tensor:
        return images

    def _make(self, width: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(width, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(512, 2),
        )


class BinaryActivation(_BinaryNetwork):
    """ART's `BinaryActivationDetector`, a network with one hidden layer on the activations of a layer.

    ART can select layers only in an `nn.Sequential`. Therefore davylamp reads the activations, and passes them to ART's
    detector through a substitute model.
    """

    def detector(self) -> Any:
        """Build ART's detector around the network on activations."""
        from art.defences.detector.evasion import BinaryActivationDetector

        features = self.network[0].in_features  # type: ignore[index]
        seen = self._as_art(nn.Sequential(nn.Identity()), (features,))
        return BinaryActivationDetector(seen, self._as_art(self.network, (features,)), layer=0)

    def _look_at(self, images: Tensor) -> Tensor:
        return collect_activations(self.classifier, images, self.parameters["layer"])

    def _see(self, images: Tensor) -> Tensor:
        return activations_of(self.classifier, images, self.parameters["layer"])

    def _make(self, width: int) -> nn.Module:
        return nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 2))


class SubsetScanning(Scorer):
    """ART's `SubsetScanningDetector`, which scores how much a subset of the activations differs from clean images."""

    background: Tensor

    def fit(self, clean: Tensor, labels: Tensor, pairs: ExamplePairs | None) -> None:
        """Store the activations of clean images."""
        del labels, pairs
        self._restart(collect_activations(self.classifier, clean, self.parameters["layer"]))

    def score(self, images: Tensor) -> Tensor:
        """Compute the score of the most unusual subset of activations with ART's `detect`, shape (N,)."""
        seen = collect_activations(self.classifier, images, self.parameters["layer"])
        report, _ = self._detector.detect(seen.numpy(), batch_size=PASS_SIZE)
        return torch.from_numpy(np.asarray(report["scores"], dtype=np.float64))

    def state(self) -> dict[str, Tensor]:
        """Return the activations of clean images, (N, features)."""
        return {"background": self.background}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore the activations."""
        self._restart(state["background"])

    def _restart(self, background: Tensor) -> None:
        from art.defences.detector.evasion import SubsetScanningDetector
        from art.estimators.classification import PyTorchClassifier

        self.background = background
        same = nn.Sequential(nn.Identity())
        seen = PyTorchClassifier(same, nn.CrossEntropyLoss(), (background.shape[1],), 2, device_type="cpu")
        self._detector = SubsetScanningDetector(seen, background.numpy(), layer=0, verbose=False)
