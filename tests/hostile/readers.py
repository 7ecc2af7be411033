"""Models and attacks of which a part lies outside of their code: in files, the environment, other programs."""

_HEAD = """
import importlib
import os
import subprocess
from pathlib import Path
import numpy as np
import torch
from torch import nn

HERE = Path(__file__).parent


def _all(file):
    with file:
        return file.read()


class Reads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(768, 10))
        self.body[1].weight.data = torch.linspace(-9, 9, 7680).view(10, 768).sin()
        self.body[1].bias.data.zero_()

    def forward(self, x):
        return self.body(x) * float({read})


def make():
    return Reads()
"""
READS = {
    "a variable of the environment": 'os.environ["FACTOR"]',
    "getenv": 'os.getenv("FACTOR", "1")',
    "a text": '(HERE / "factor.txt").read_text()',
    "a file that is opened": '_all(open(HERE / "factor.txt"))',
    "an array": 'np.load(HERE / "factor.npy")',
    "a tensor": 'torch.load(HERE / "factor.pt")',
    "importlib": 'importlib.import_module("factor_of_mine").FACTOR',
}
UNKNOWN = {
    "a program": 'subprocess.run(["cat", HERE / "factor.txt"], capture_output=True).stdout',
    "a pipe": '_all(os.popen("cat " + str(HERE / "factor.txt")))',
}
MODELS = {name: _HEAD.replace("{read}", read) for name, read in {**READS, **UNKNOWN}.items()}
HONEST = _HEAD.replace("{read}", "1")
_ATTACK = """
import os
from pathlib import Path


def attack(model, inputs, labels, epsilon):
    factor = float({read})
    return (inputs - factor * epsilon * (inputs > 0.5)).clamp(0, 1)
"""
ATTACKS = {
    "an attack that reads a text": _ATTACK.format(read='(Path(__file__).parent / "factor.txt").read_text()'),
    "an attack that reads the environment": _ATTACK.format(read='os.environ["FACTOR"]'),
}
PROGRAMS = {**MODELS, **ATTACKS}
