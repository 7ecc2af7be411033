"""RobustBench's names: which model they mean, where its weights have to be, and what is said where they are not."""

import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from davylamp.adapters.models.zoo import robustbench, weights
from davylamp.adapters.models.zoo.load import load_model
from davylamp.adapters.models.zoo.robustbench import ZooEntry, find_listed, list_zoo
from davylamp.errors import InvalidInput, MissingLibrary, Unavailable, UnknownName, Unsupported


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3 * 32 * 32, 10)

    def forward(self, inputs):
        return self.layer(inputs.flatten(1))


ZOO = [
    ZooEntry("cifar10", "Linf", "Rice2020Overfitting", {"model": Net, "gdrive_id": "abc"}),
    ZooEntry("cifar10", "L2", "Rice2020Overfitting", {"model": Net, "gdrive_id": "def"}),
    ZooEntry("cifar10", "L2", "Engstrom2019Robustness", {"model": Net, "gdrive_id": "ghi"}),
    ZooEntry("imagenet", "Linf", "Wong2020Fast", {"gdrive_id": "x", "preprocessing": "Res256Crop224"}),
    ZooEntry("imagenet", "Linf", "Standard_R50", {"gdrive_id": "", "preprocessing": "Res256Crop224"}),
]


@pytest.fixture
def listed(monkeypatch, tmp_path):
    """A zoo of five, in an empty folder, without a network."""
    monkeypatch.setattr(robustbench, "list_zoo", lambda: ZOO)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))

    def no_network(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(weights, "urlopen", no_network)
    return tmp_path


def test_a_name_means_one_model_in_any_case_of_letters():
    assert find_listed("engstrom2019robustness", ZOO) is ZOO[2]
    assert find_listed("CIFAR10/l2/Rice2020Overfitting", ZOO) is ZOO[1]
    with pytest.raises(InvalidInput, match=r"got 2: robustbench:cifar10/Linf/Rice2020Overfitting, robustbench:cifar10"):
        find_listed("Rice2020Overfitting", ZOO)
    with pytest.raises(UnknownName, match="Wong2020Fast"):
        find_listed("Wong2020Fas", ZOO)


def test_weights_that_are_not_there_are_one_line_that_says_where_they_go(listed):
    file = listed / "hub" / "robustbench" / "cifar10" / "L2" / "Engstrom2019Robustness.pt"
    with pytest.raises(Unavailable, match=r"uc\?id=ghi \(no network\); fetch that file .* save it here as ") as refused:
        load_model("robustbench:Engstrom2019Robustness")
    assert str(refused.value).endswith(str(file))
    (listed / "models" / "cifar10" / "L2").mkdir(parents=True)  # as RobustBench itself keeps them
    with pytest.raises(Unavailable, match=r"save it here as models/cifar10/L2/Engstrom2019Robustness\.pt"):
        load_model("robustbench:cifar10/L2/Engstrom2019Robustness")
    with pytest.raises(Unsupported, match="torchvision:resnet50"):
        load_model("robustbench:Standard_R50")


def test_a_download_that_breaks_off_leaves_nothing(listed, monkeypatch):
    def download(**words):
        Path(words["output"]).write_bytes(b"half")
        raise RuntimeError("quota")

    monkeypatch.setitem(sys.modules, "gdown", ModuleType("gdown"))
    sys.modules["gdown"].download = download
    monkeypatch.setattr(robustbench, "check_reachable", lambda *_: None)
    with pytest.raises(Unavailable, match=r"could not fetch .* \(quota\)"):
        load_model("robustbench:Engstrom2019Robustness")
    assert not list((listed / "hub").rglob("*Engstrom*"))


def test_without_the_package_the_command_that_works_is_said(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    list_zoo.cache_clear()
    with pytest.raises(
        MissingLibrary, match=r"^robustbench is not installed .* run: pip install --no-deps robustbench==1"
    ):
        load_model("robustbench:Wong2020Fast")
    assert "autoattack" not in sys.modules or importlib.util.find_spec("autoattack")


needs_it = pytest.mark.skipif(
    not any(importlib.metadata.distributions(name="robustbench")),
    reason="RobustBench cannot be a plain requirement: see docs/model-names.md",
)


@needs_it
def test_its_own_zoo_and_loader_with_weights_made_here(tmp_path, monkeypatch):
    """The architecture of Rice2020Overfitting with random weights, wrapped as its file has them."""
    list_zoo.cache_clear()
    entry = find_listed("cifar10/L2/Rice2020Overfitting", list_zoo())
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = entry.entry["model"]().eval()
    folder = tmp_path / "models" / "cifar10" / "L2"
    folder.mkdir(parents=True)
    file = folder / "Rice2020Overfitting.pt"
    torch.save({f"module.{name}": value for name, value in net.state_dict().items()}, file)
    monkeypatch.chdir(tmp_path)
    classifier = load_model("robustbench:cifar10/L2/Rice2020Overfitting", fold=False)
    images = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.allclose(classifier(images), net(images), atol=1e-5)
    assert (classifier.num_classes, classifier.resize, classifier.crop) == (10, 32, 32)
    assert classifier.loading_notes[0].endswith("leaderboard cifar10, l2 0.5 (--data torchvision:cifar10)")
    torch.save({"state_dict": os.getcwd}, file)  # a program instead of tensors
    with pytest.raises(Unavailable, match="could not load the weights of robustbench:"):
        load_model("robustbench:cifar10/L2/Rice2020Overfitting")
    assert "autoattack" not in sys.modules


@needs_it
def test_every_preprocessing_of_its_zoo_is_known():
    list_zoo.cache_clear()
    zoo = list_zoo()
    assert len(zoo) > 150
    assert {each.dataset for each in zoo} == set(robustbench._CLASSES)
    for each in zoo:
        assert robustbench._sizes_of(each)["crop"] in (32, 224, 288)
