"""The images and weights of the corpus, from scikit-learn's digits; run once, what it wrote is stored.

python -m tests.golden.make_inputs
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from .corpus import INPUTS
from .inputs.models import make_cnn, make_mlp, make_two


def train(network: nn.Module, images: torch.Tensor, labels: torch.Tensor, loss: nn.Module) -> nn.Module:
    """Adam, 15 epochs."""
    optimiser = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(15):
        for batch in torch.randperm(len(images)).split(100):
            optimiser.zero_grad()
            loss(network(images[batch]), labels[batch]).backward()
            optimiser.step()
    return network


def main() -> None:
    """Write weights.npz, and the images as images.npz, large.npz, training.npz and binary.npz."""
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(np.round(digits.images / 16 * 255) / 255, dtype=torch.float32)[:, None]
    labels = torch.tensor(digits.target)
    upper = (labels >= 5).float()[:, None]
    networks = {
        "cnn": train(make_cnn(), images[:1400], labels[:1400], nn.CrossEntropyLoss()),
        "mlp": train(make_mlp(), images[:1400], labels[:1400], nn.CrossEntropyLoss()),
        "two": train(make_two(), images[:1400], upper[:1400], nn.BCEWithLogitsLoss()),
    }
    stored = {
        f"{name}.{key}": value.numpy()
        for name, network in networks.items()
        for key, value in network.state_dict().items()
    }
    np.savez_compressed(INPUTS / "weights.npz", **stored)
    tested = slice(1500, 1524)
    np.savez_compressed(INPUTS / "images.npz", images=images[tested].numpy(), labels=labels[tested].numpy())
    large_images = images[tested].repeat_interleave(4, 2).repeat_interleave(4, 3)
    np.savez_compressed(INPUTS / "large.npz", images=large_images.numpy(), labels=labels[tested].numpy())
    np.savez_compressed(INPUTS / "training.npz", images=images[:100].numpy(), labels=labels[:100].numpy())
    np.savez_compressed(INPUTS / "binary.npz", images=images[tested].numpy(), labels=upper[tested, 0].long().numpy())
    for name, network in networks.items():
        given = network(images[tested])
        right = (given[:, 0] > 0).long() == upper[tested, 0] if name == "two" else given.argmax(1) == labels[tested]
        print(name, int(right.sum()), "of", len(right))


if __name__ == "__main__":
    main()
