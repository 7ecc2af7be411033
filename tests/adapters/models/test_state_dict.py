"""Plain state dicts by name, before or behind their architecture: the same model; one line where they do not fit."""

import warnings

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from davylamp.adapters.models.classifier import Classifier
from davylamp.adapters.models.identity.digest import digest_model
from davylamp.adapters.models.zoo.load import load_model
from davylamp.adapters.models.zoo.weights_file import base_model_name, pack_weights
from davylamp.errors import InvalidInput, Unavailable

FACTORY = """
from torch import nn
from davylamp.adapters.models.classifier import Classifier

def make():
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 4))

def wrapped():
    return Classifier(make(), mean=[0.5] * 3, std=[0.25] * 3, crop=2)

def defend(classifier):
    return nn.Sequential(nn.Identity(), classifier)
"""


@pytest.fixture
def net():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 4)).requires_grad_(False)


@pytest.fixture
def folder(tmp_path, monkeypatch, net):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    for variable in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")  # what is fetched fails
    (tmp_path / "net.py").write_text(FACTORY)
    torch.save(net.state_dict(), "state.pth")
    return tmp_path


@pytest.fixture(scope="session")
def published():
    """ResNet-18 for 7 classes with random weights and statistics."""
    from torchvision import models

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return models.resnet18(num_classes=7).eval().requires_grad_(False)


@pytest.mark.parametrize("name", ["state.pth+net.py:make", "net.py:make+state.pth"])
def test_a_file_before_or_behind_its_factory(folder, net, name):
    classifier = load_model(name)
    images = torch.rand(3, 3, 2, 2)
    assert torch.equal(classifier(images), net(images))
    assert classifier.name == name
    assert base_model_name(name) == name


def test_a_factory_s_classifier_keeps_its_preprocessing(folder, net):
    classifier = load_model("state.pth+net.py:wrapped")
    images = torch.rand(3, 3, 2, 2)
    assert torch.allclose(classifier(images), net((images - 0.5) / 0.25), atol=1e-6)
    assert classifier.crop == 2


@pytest.mark.parametrize("name", ["w.pth+torchvision:resnet18", "torchvision:resnet18+w.pth"])
def test_a_published_architecture_has_as_many_classes_as_the_weights(folder, published, name):
    torch.save(published.state_dict(), "w.pth")
    state = torch.random.get_rng_state()
    classifier = load_model(name, fold=False)
    assert torch.equal(torch.random.get_rng_state(), state)
    images = torch.rand(2, 3, 64, 64)
    mean, std = (torch.tensor(x).view(3, 1, 1) for x in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    assert torch.allclose(classifier(images), published((images - mean) / std), atol=1e-5)
    assert (classifier.num_classes, classifier.resize, classifier.crop) == (7, 256, 224)
    assert "of torchvision:resnet18's published weights" in classifier.loading_notes[-1]
    plain = Classifier(published, mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225], resize=256, crop=224)
    assert digest_model(load_model(name)) == digest_model(classifier) == digest_model(plain)


def test_timm_s_architecture_and_safetensors(folder):
    import timm

    with torch.random.fork_rng():
        reference = timm.create_model("test_vit.r160_in1k", num_classes=5).eval().requires_grad_(False)
    save_file(reference.state_dict(), "w.safetensors")
    classifier = load_model("w.safetensors+timm:test_vit.r160_in1k")
    images = torch.rand(2, 3, 160, 160)
    assert torch.allclose(classifier(images), reference(images * 2 - 1), atol=1e-5)
    assert (classifier.num_classes, classifier.crop) == (5, 160)


@pytest.mark.parametrize(
    ("wrap", "notes"),
    [
        (lambda s: {"epoch": 3, "state_dict": s}, ["took the entry 'state_dict' of w.pth (it has epoch, state_dict)"]),
        (
            lambda s: {"model": {f"module.{k}": v for k, v in s.items()}},
            ["entry 'model'", "removed 'module.' from the nam"],
        ),
        (lambda s: {f"_orig_mod.module.{k}": v for k, v in s.items()}, ["'_orig_mod.' from", "'module.' from"]),
    ],
)
def test_checkpoints_and_prefixes_are_unwrapped_and_said(folder, net, wrap, notes):
    torch.save(wrap(net.state_dict()), "w.pth")
    classifier = load_model("w.pth+net.py:make")
    images = torch.rand(3, 3, 2, 2)
    assert torch.equal(classifier(images), net(images))
    assert len(classifier.loading_notes) == len(notes)
    assert all(part in note for part, note in zip(notes, classifier.loading_notes, strict=True))


def test_a_defence_stands_behind_both(folder, net):
    images = torch.rand(3, 3, 2, 2)
    for name in ("state.pth+net.py:make+net.py:defend", "net.py:make+state.pth+net.py:defend"):
        assert torch.equal(load_model(name)(images), net(images))
    trained = pack_weights("net.py:make", net.state_dict(), {})
    torch.save(trained, "ours.pt")
    assert torch.equal(load_model("ours.pt+net.py:defend")(images), net(images))  # it is of a model: no architecture
    assert isinstance(load_model("ours.pt+net.py:defend").model[1], Classifier)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: {"1.weight": s["1.weight"]}, r"which has 2 tensors: 1 missing \(1.bias\)$"),
        (lambda s: {**s, "2.a": s["1.bias"]}, r"1 unexpected \(2.a\)$"),
        (lambda s: {**s, "1.bias": torch.rand(9)}, r"1 of a different shape \(1.bias \(9,\) for \(4,\)\)$"),
        (lambda s: {f"{k}.x": s["1.bias"] for k in "abcde"}, r"5 unexpected \(a.x, b.x, c.x, ...\)$"),
        (lambda s: {}, "expected a state dict in .*, got dict; save"),
        (lambda s: {"epoch": 1, "optimizer": {}}, "got dict with epoch, optimizer; save model.state_dict"),
        (lambda s: [s], "expected a state dict in .*, got list"),
    ],
)
def test_weights_that_do_not_fit_are_one_line(folder, net, change, words):
    torch.save(change(net.state_dict()), "w.pth")
    with pytest.raises(InvalidInput, match=words) as caught:
        load_model("w.pth+net.py:make")
    assert "\n" not in str(caught.value)


def test_a_module_is_not_unpickled(folder, net):
    torch.save(net, "w.pth")
    with pytest.raises(Unavailable, match=r"contains code \(pickled classes\), is damaged"):
        load_model("w.pth+net.py:make")


@pytest.mark.parametrize("suffix", ["pth", "safetensors", "bin"])
def test_what_cannot_be_read_is_one_line(folder, suffix):
    (folder / f"bad.{suffix}").write_bytes(b"no weights")
    for name in (f"bad.{suffix}+torchvision:resnet18", f"none.{suffix}+torchvision:resnet18"):
        with pytest.raises(Unavailable, match=r"no such file|weights|tensors") as caught:
            load_model(name)
        assert "\n" not in str(caught.value)


def test_a_file_alone_says_what_is_missing(folder):
    with pytest.raises(InvalidInput, match=r"state.pth holds weights only"):
        load_model("state.pth")
    with pytest.raises(Unavailable, match="no such file"):
        load_model("gone.pth+net.py:make")


def test_the_largest_published_architectures_count_their_classes(folder):
    from torchvision import models

    for name in ("squeezenet1_1", "vit_b_16", "densenet121"):
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            weights = models.get_model(name, num_classes=13).state_dict()
        from davylamp.adapters.models.zoo.load import PROVIDERS
        from davylamp.adapters.models.zoo.state_dict import _count_classes

        assert _count_classes(PROVIDERS["torchvision"].architecture(name), weights) == 13
