"""Trains the networks of `demo:digits-cnn` and `demo:digits-cnn-robust`, and writes their weights.

    python -m davylamp.tools.digits.train [--out adapters/models/zoo/digits]

One is trained normally, the other on PGD examples within linf 0.1 (Madry et al. 2018), by the training loop of
`davylamp harden`. Both use the first 1400 digits. `demo:digits` has the other 397. A different version of torch gives
slightly different weights.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from davylamp.adapters import Classifier
from davylamp.adapters.data.bundled_images import TRAINED_ON, read_digits
from davylamp.adapters.models.zoo.demo import DIGITS, digits_network
from davylamp.engine.training.loop import train
from davylamp.engine.training.methods import make_settings
from davylamp.engine.training.student import TrainableModel

EPSILON = 0.1
_METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "digits-cnn": ("natural", {}),
    "digits-cnn-robust": ("pgd", {"steps": 7, "start": "gaussian"}),
}
_NUMBERS: Mapping[str, Any] = {
    "epochs": 15,
    "batch_size": 100,
    "learning_rate": 3e-3,
    "optimiser": "adam",
    "schedule": "constant",
    "weight_decay": 0.0,
}


def main() -> None:
    """Train both networks, write them, and print their clean accuracy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DIGITS)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    images, labels = read_digits()
    for name, (method, more) in _METHODS.items():
        torch.manual_seed(0)
        student = TrainableModel(Classifier(digits_network()))
        settings = make_settings(method, "linf", EPSILON, {**_NUMBERS, **more})
        train(student, images[:TRAINED_ON], labels[:TRAINED_ON], settings)
        torch.save(student.model.state_dict(), out / f"{name}.pt")
        student.model.eval()
        with torch.no_grad():
            right = student.model(images[TRAINED_ON:]).argmax(1) == labels[TRAINED_ON:]
        sys.stdout.write(f"{name}: {int(right.sum())} of {len(right)} correct\n")


if __name__ == "__main__":
    main()
