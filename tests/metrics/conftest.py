"""Examples that many tests of the metrics share."""

import pytest
import torch
from torch import nn

N, K, M = 12, 5, 3  # images, classes, models


class Linear(nn.Module):
    """Classifier whose distance to the boundary is known."""

    def __init__(self, weight: torch.Tensor):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.flatten(1) @ self.weight.to(inputs).T


@pytest.fixture
def linear():
    return Linear


@pytest.fixture
def images():
    """Clean and adversarial images, float64, and which count."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.rand(N, 3, 18, 20, dtype=torch.float64, generator=generator)
    noise = 0.05 * torch.randn(inputs.shape, dtype=torch.float64, generator=generator)
    success = torch.rand(N, generator=generator) < 0.7
    return inputs, (inputs + noise).clamp(0, 1), success


@pytest.fixture
def outputs():
    """Logits before and after an attack and labels, such that every case occurs."""
    generator = torch.Generator().manual_seed(2)
    labels = torch.randint(K, (N,), generator=generator)
    logits = torch.randn(N, K, dtype=torch.float64, generator=generator)
    logits[torch.arange(N), labels] += 1.5
    adv_logits = torch.randn(N, K, dtype=torch.float64, generator=generator)
    adv_logits[torch.arange(N), labels] += 0.5
    return logits, adv_logits, labels


@pytest.fixture(scope="session")
def vgg():
    """Layers of a VGG16 with random weights, such as DISTS takes."""
    widths = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)
    layers, channels = [], 3
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for width in widths:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)] if width else [nn.MaxPool2d(2)]
            channels = width or channels
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, generator=torch.Generator().manual_seed(layer.out_channels))
    return nn.Sequential(*layers).eval().requires_grad_(False).double()


@pytest.fixture
def arguments(images, outputs, vgg):
    """A value for every argument of every metric."""
    generator = torch.Generator().manual_seed(3)
    inputs, adv_inputs, success = images
    logits, adv_logits, labels = outputs

    def random(*shape):
        return torch.rand(*shape, dtype=torch.float64, generator=generator)

    def classes(*shape):
        return torch.randint(K, shape, generator=generator)

    weight = random(K, 3 * 18 * 20) - 0.5
    return {
        "inputs": inputs,
        "adv_inputs": adv_inputs,
        "defended_adv_inputs": (inputs + 0.2 * random(*inputs.shape) - 0.1).clamp(0, 1),
        "success": success,
        "defended_success": random(N) < 0.5,
        "labels": labels,
        "targets": classes(N),
        "logits": logits,
        "adv_logits": adv_logits,
        "defended_logits": logits + random(N, K),
        "defended_adv_logits": adv_logits + random(N, K),
        "predicted_cams": random(N, 4, 4),
        "predicted_adv_cams": random(N, 4, 4),
        "true_cams": random(N, 4, 4),
        "true_adv_cams": random(N, 4, 4),
        "forwards": torch.arange(N),
        "backwards": torch.arange(N) * 2,
        "seconds": random(7),
        "values": random(N),
        "counting": random(N) < 0.7,
        "distances": random(N) + 1,
        "best_distances": random(N),
        "predictions": classes(M, N).where(random(M, N) < 0.5, labels),
        "adv_predictions": classes(M, N),
        "source": 1,
        "similarity": random(K, K),
        "weight": weight,
        "activations": random(N, 6, 3, 3),
        "adv_activations": random(N, 6, 3, 3),
        "low": torch.full((54,), 0.1, dtype=torch.float64),
        "high": torch.full((54,), 0.9, dtype=torch.float64),
        "layers": [random(N, 6, 3, 3), random(N, 8)],
        "errors": random(4, 5),
        "clean_error": 0.1,
        "frames": classes(6, 9),
        "flip_probabilities": random(4),
        "base_flip_probabilities": random(4),
        "model": Linear(weight),
        "directions": random(4, 3, 18, 20) - 0.5,
        "magnitudes": torch.tensor([0.0, 4.0, 16.0, 64.0], dtype=torch.float64),
        "noisy_logits": random(N, 2, K),
        "noisy_inputs": (inputs[:, None] + 0.02 * random(N, 2, 3, 18, 20)).clamp(0, 1),
        "epsilon": 0.02,
        "k": 2,
        "ks": (1, 2, 4),
        "p": 2,
        "sections": 4,
        "features": vgg,
    }
