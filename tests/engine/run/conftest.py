"""Four linear models of four classes and images for them, in a file: models that differ, whose truth is a product."""

import pytest

NET = """
import torch

WEIGHTS = torch.randn(4, 48, generator=torch.Generator().manual_seed(9))

def build(seed):
    layer = torch.nn.Linear(48, 4)
    layer.weight.data = WEIGHTS + 0.3 * torch.randn(4, 48, generator=torch.Generator().manual_seed(seed))
    layer.bias.data.zero_()
    return torch.nn.Sequential(torch.nn.Flatten(), layer)

def one(): return build(1)
def two(): return build(2)
def three(): return build(3)
def few(): return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3))

def labelled(seed, count):
    inputs = torch.rand(count, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
    return inputs, (inputs.flatten(1) @ WEIGHTS.T).argmax(1)

def images(): return labelled(1, 9)

def more():
    (a, b), (c, d) = labelled(1, 9), labelled(2, 8)
    return torch.cat([a, c]), torch.cat([b, d])
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The working folder, with net.py in it."""
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    return tmp_path
