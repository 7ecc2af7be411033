"""An undefended and two defended CNNs on scikit-learn's digits: what the CIFAR- and SVHN-shaped tables run on offline.

Standard training, adversarial training with PGD (Madry et al. 2018) and TRADES (Zhang et al. 2019, beta 6), all with
the same network, images of 3 x 32 x 32 and linf radius 0.1. The module, run as a program, trains all.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...adapters import Classifier
from ...adapters.data.datasets import Data

EPSILON = 0.1
TRAINED_ON = 1400
_EPOCHS, _BATCH, _STEPS, _BETA = 8, 100, 5, 6.0


def load_digits_data(count: int | None = None) -> Data:
    """The digits that no model was trained on (397), as colour images in [0, 1] of 32 x 32."""
    inputs, labels = _digits()
    inputs, labels = inputs[TRAINED_ON:][:count].contiguous(), labels[TRAINED_ON:][:count]
    return Data(inputs, labels, [f"digit_{TRAINED_ON + i}" for i in range(len(labels))])


def load_training_inputs() -> Tensor:
    """The images that every model was trained on, shape (1400, 3, 32, 32)."""
    return _digits()[0][:TRAINED_ON].contiguous()


def small_models() -> dict[str, Classifier]:
    """Every model by name, trained now or read from the cache."""
    return {name: load_small_model(name) for name in LOSSES}


def load_small_model(name: str) -> Classifier:
    """One model: "standard", "pgd-training" or "trades"; trained on the first call (seconds), then cached."""
    file = _cache() / f"{name}-{_digest()}.pt"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = _network()
        if file.is_file():
            net.load_state_dict(torch.load(file, weights_only=True))
        else:
            _train(net, LOSSES[name])
            file.parent.mkdir(parents=True, exist_ok=True)
            draft = file.with_suffix(f".{os.getpid()}")
            torch.save(net.state_dict(), draft)
            draft.replace(file)
    return Classifier(net, num_classes=10, name=f"digits:{name}")


def _network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2048, 10),
    )


def _train(net: nn.Module, loss: Callable[[nn.Module, Tensor, Tensor], Tensor]) -> None:
    inputs, labels = _digits()
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(_EPOCHS):
        for batch in torch.randperm(TRAINED_ON).split(_BATCH):
            value = loss(net, inputs[batch], labels[batch])
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
    net.eval()


def _standard_loss(net: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(net(inputs), labels)


def _pgd_loss(net: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    adv_inputs = _ascend(inputs, lambda adv: functional.cross_entropy(net(adv), labels))
    return functional.cross_entropy(net(adv_inputs), labels)


def _trades_loss(net: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    clean = net(inputs).softmax(1).detach()
    adv_inputs = _ascend(inputs, lambda adv: functional.kl_div(net(adv).log_softmax(1), clean, reduction="sum"))
    logits = net(inputs)
    gap = functional.kl_div(net(adv_inputs).log_softmax(1), logits.softmax(1), reduction="batchmean")
    return functional.cross_entropy(logits, labels) + _BETA * gap


def _ascend(inputs: Tensor, objective: Callable[[Tensor], Tensor]) -> Tensor:
    """Steps up the objective from a random point near the images, inside the ball and [0, 1]."""
    adv_inputs = (inputs + 0.001 * torch.randn_like(inputs)).clamp(0, 1)
    for _ in range(_STEPS):
        adv_inputs = adv_inputs.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(objective(adv_inputs), adv_inputs)
        moved = adv_inputs.detach() + 2.5 * EPSILON / _STEPS * gradient.sign()
        adv_inputs = torch.min(torch.max(moved, inputs - EPSILON), inputs + EPSILON).clamp(0, 1)
    return adv_inputs.detach()


LOSSES: Mapping[str, Callable[[nn.Module, Tensor, Tensor], Tensor]] = {
    "standard": _standard_loss,
    "pgd-training": _pgd_loss,
    "trades": _trades_loss,
}


def _digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    digits: Any = load_digits()
    images = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None].expand(-1, 3, -1, -1)
    return functional.interpolate(images, scale_factor=4, mode="bilinear").clamp(0, 1), torch.tensor(digits.target)


def _digest() -> str:
    """Of this file and torch's version: a cached model is never that of other code."""
    return hashlib.sha256(Path(__file__).read_bytes() + torch.__version__.encode()).hexdigest()[:12]


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "davylamp" / "small_models"


if __name__ == "__main__":
    data = load_digits_data()
    for model_name, model in small_models().items():
        accuracy = (model.predict_logits(data.inputs).argmax(1) == data.labels).double().mean()
        print(f"{model_name}: accuracy {accuracy:.3f} on {len(data.labels)} digits")
