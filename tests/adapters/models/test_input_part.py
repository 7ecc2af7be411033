"""What a model wants of an image, said in its name or by options: the same pixels as by hand; a mistake is one line."""

import json

import pytest
import torch
from PIL import Image
from torch import nn

from davylamp.adapters.data.datasets import load_data_for
from davylamp.adapters.models.classifier import Classifier
from davylamp.adapters.models.identity.digest import digest_model
from davylamp.adapters.models.zoo.input_settings import read_labels, write_input
from davylamp.adapters.models.zoo.load import add_parts, load_model
from davylamp.errors import DavylampError, InvalidInput, Unavailable, UnknownName

FACTORY = """
import torch
from torch import nn
from davylamp.adapters.models.classifier import Classifier

def make():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 3))

def wrapped():
    return Classifier(make(), num_classes=3, mean=[0.5] * 3, std=[0.25] * 3, resize=8, crop=8)

def defend(classifier):
    return nn.Sequential(nn.Identity(), classifier)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(FACTORY)
    for place, name in enumerate(("bee", "cat", "ant")):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.new("RGB", (20, 12), (40 * place, 90, 7)).save(tmp_path / "images" / name / "one.png")
    (tmp_path / "names.txt").write_text("cat\nant\nbee\n")
    return tmp_path


def test_mean_and_std_take_the_place_of_the_published_ones(folder):
    images, plain = torch.rand(4, 3, 8, 8), load_model("net.py:make").model
    mean, std = torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1), torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)
    for name in ("net.py:make", "net.py:wrapped"):
        classifier = load_model(f"{name}+input:mean=0.4/0.5/0.6,std=0.1/0.2/0.3")
        assert torch.allclose(classifier(images), plain((images - mean) / std), atol=1e-5)
    bytes_ = load_model(f"net.py:wrapped+{write_input({'mean': '0', 'std': '1/255'})}")
    assert torch.allclose(bytes_(images), plain(images * 255), atol=1e-3)  # of logits near 100


def test_sizes_are_those_of_image_files(folder):
    for name, size in (("resize=10,crop=6", (6, 6)), ("resize=none,crop=none", (12, 20)), ("crop=4", (4, 4))):
        classifier = load_model(f"net.py:wrapped+input:{name},interpolation=bicubic")
        assert load_data_for(classifier, "imagefolder:images").inputs.shape[2:] == size
        assert classifier.interpolation == "bicubic"


def test_identity_has_what_was_said_only_where_it_differs(folder):
    plain = digest_model(load_model("net.py:wrapped"))
    assert digest_model(load_model("net.py:wrapped+input:mean=0.5,std=0.25,crop=8")) == plain
    assert digest_model(load_model("net.py:wrapped+input:crop=6")) != plain
    assert digest_model(load_model("net.py:wrapped+input:labels=names.txt")) == plain  # the data's labels differ
    demo = digest_model(load_model("demo:efficientnet-lite0"))
    assert digest_model(load_model("demo:efficientnet-lite0+input:crop=224")) == demo


def test_names_of_classes_give_folders_and_tables_their_labels(folder):
    data = load_data_for(load_model("net.py:make"), "imagefolder:images")
    assert dict(zip(data.names, data.labels.tolist(), strict=True)) == {
        "ant/one.png": 0,
        "bee/one.png": 1,
        "cat/one.png": 2,
    }
    for defence in ("", "+net.py:defend"):
        data = load_data_for(load_model(f"net.py:make+input:labels=names.txt{defence}"), "imagefolder:images")
        assert dict(zip(data.names, data.labels.tolist(), strict=True)) == {
            "cat/one.png": 0,
            "ant/one.png": 1,
            "bee/one.png": 2,
        }
    (folder / "images" / "labels.csv").write_text("file,label\ncat/one.png,cat\nbee/one.png,bee\nant/one.png,2\n")
    data = load_data_for(load_model("net.py:make+input:labels=names.txt"), "imagefolder:images")
    assert dict(zip(data.names, data.labels.tolist(), strict=True)) == {
        "cat/one.png": 0,
        "bee/one.png": 2,
        "ant/one.png": 2,
    }


def test_a_folder_without_a_label_is_one_line(folder):
    (folder / "images" / "dog").mkdir()
    with pytest.raises(InvalidInput, match=r"the 3 given class names lack classes of .*: dog .1 of 4 classes"):
        load_data_for(load_model("net.py:make+input:labels=names.txt"), "imagefolder:images")


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (["cat", "ant"], ("cat", "ant")),
        ({"0": "cat", "1": "ant"}, ("cat", "ant")),
        ({"ant": 1, "cat": 0}, ("cat", "ant")),
        ({"0": ["n02123045", "cat"], "1": ["n02206856", "ant"]}, ("n02123045", "n02206856")),
    ],
)
def test_labels_are_read_from_json(tmp_path, content, names):
    (tmp_path / "names.json").write_text(json.dumps(content))
    assert read_labels(tmp_path / "names.json") == names


def test_options_become_a_part_before_the_defences(folder):
    settings = {"crop": "6", "mean": "0.5, 0.4,0.3", "std": "1/4,0.5,1"}
    part = "+input:crop=6,mean=0.5/0.4/0.3,std=0.25/0.5/1"
    torch.save(nn.Linear(2, 2).state_dict(), "w.pth")
    for name, expected in {
        "net.py:make": f"net.py:make{part}",
        "net.py:make+net.py:defend": f"net.py:make{part}+net.py:defend",
        "demo:efficientnet-lite0+jpeg:quality=50": f"demo:efficientnet-lite0{part}+jpeg:quality=50",
        "w.pth+net.py:make+jpeg": f"w.pth+net.py:make{part}+jpeg",
        "net.py:make+w.pth": f"net.py:make+w.pth{part}",
        "net.py:make+input:crop=2": "net.py:make+input:crop=2",
    }.items():
        assert add_parts(name, settings=settings) == expected
    assert add_parts("net.py:make", settings={}) == "net.py:make"
    assert isinstance(load_model(add_parts("net.py:make+net.py:defend", settings=settings)), Classifier)


@pytest.mark.parametrize(
    ("part", "error", "words"),
    [
        ("input:croop=2", UnknownName, "unknown setting of input 'croop'; did you mean crop"),
        ("input:crop", InvalidInput, "expected input:KEY=VALUE,KEY=VALUE, got"),
        ("input:crop=x", InvalidInput, "expected crop as a side in pixels, or none, got 'x'"),
        ("input:crop=0", InvalidInput, "expected crop as a side"),
        ("input:mean=0.5", InvalidInput, "must be given together, got only mean"),
        ("input:mean=0.5,std=0", InvalidInput, "expected std as 1 or 3 numbers > 0 separated by slashes, got '0'"),
        ("input:mean=1/2,std=1", InvalidInput, "expected mean as 1 or 3 numbers separated by slashes, got '1/2'"),
        ("input:mean=nan,std=1", InvalidInput, "expected mean as numbers, got 'nan'"),
        ("input:interpolation=nearest", InvalidInput, "expected interpolation as bilinear or bicubic"),
        (
            "input:labels=none.txt",
            Unavailable,
            "could not read the class names in none.txt",
        ),
        ("input:labels=twice.txt", InvalidInput, "got 'cat' twice"),
        ("input:labels=four.txt", InvalidInput, "expected 3 labels, one for each class of .*, got 4"),
        ("jpeg+input:crop=2", InvalidInput, "directly after the model, before its defences"),
    ],
)
def test_a_mistake_is_one_line(folder, part, error, words):
    (folder / "twice.txt").write_text("cat\nant\ncat\n")
    (folder / "four.txt").write_text("a\nb\nc\nd\n")
    with pytest.raises(error, match=words) as caught:
        load_model(f"net.py:wrapped+{part}")
    assert isinstance(caught.value, DavylampError)
    assert "\n" not in str(caught.value)


def test_the_options_reach_the_model(run, folder):
    base = ("evaluate", "--data", "imagefolder:images", "--models", "net.py:wrapped", "--attacks", "foolbox:fgsm")
    code, out, err = run(*base, "--crop", "6", "--labels", "names.txt", "--defence", "jpeg", "--print-config")
    assert code == 0, err
    name = "net.py:wrapped+input:crop=6,labels=names.txt"
    assert f'"{name}"' in out
    assert f'"{name}+jpeg"' in out
    models = ("--model", "net.py:wrapped", "--data", "imagefolder:images", "--crop", "x")
    for command in (("compare", "pgd"), ("saturation", "pgd"), ("fit", "lid"), ("harden", "net.py:make")):
        given = [word for word in models if command[0] != "harden" or word not in ("--model", "net.py:wrapped")]
        code, _, err = run(*command, *given)
        assert (code, err.strip().splitlines()[-1]) == (
            1,
            "davylamp: expected crop as a side in pixels, or none, got 'x'",
        )
