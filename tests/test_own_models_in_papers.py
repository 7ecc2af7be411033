"""Reproductions with models of the papers' architectures, of random weights: each meets its own row and no other's."""

import math
from collections.abc import Mapping

import pytest
import torch
import torchvision
from torch import nn

import davylamp
from davylamp.adapters.data.datasets import Data
from davylamp.benchmarks import Options
from davylamp.benchmarks.aisafety import coverage
from davylamp.benchmarks.canary import setting as canary_setting
from davylamp.benchmarks.fooling import setting as fooling_setting
from davylamp.benchmarks.reproductions import list_tables
from davylamp.benchmarks.robic import table2
from davylamp.benchmarks.shared.counterpart import Counterpart
from davylamp.benchmarks.shared.paper_numbers import find_value, load_rows
from davylamp.errors import InvalidInput, UnknownName
from davylamp.metrics import METRICS, low_frequency_distortion

TABLES = list_tables()


def vgg16(classes):
    """VGG-16 as it is used for images of 32 pixels, of an eighth of its width: convolutions and one linear layer."""
    layers = [each // 8 if isinstance(each, int) else each for each in torchvision.models.vgg.cfgs["D"]]
    features = torchvision.models.vgg.make_layers(layers, batch_norm=True)
    return nn.Sequential(features, nn.Flatten(), nn.Linear(64, classes))


def shared_relus(classes):
    """A thin ResNet, whose blocks use one ReLU at two positions."""
    block = torchvision.models.resnet.BasicBlock
    smaller = nn.Sequential(nn.Conv2d(8, 16, 1, stride=2), nn.BatchNorm2d(16))
    blocks = (block(8, 8), block(8, 16, stride=2, downsample=smaller))
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, classes)
    )


def efficientnet(classes):
    """An EfficientNet of two stages."""
    block = torchvision.models.efficientnet.MBConvConfig
    stages = [block(1, 3, 1, 16, 16, 1), block(6, 3, 2, 16, 24, 1)]
    return torchvision.models.EfficientNet(stages, 0.2, num_classes=classes, last_channel=64)


@pytest.fixture(scope="module")
def small():
    """Two images of 32 pixels, and the labels that every model is made to give them."""
    torch.manual_seed(0)
    return Data(torch.rand(2, 3, 32, 32), torch.tensor([1, 2]), ["a", "b"])


def fitted(model, data):
    """Return the model in a state that it gives the labels, so that there is something to attack."""
    torch.manual_seed(1)
    model.train(False)
    last = [part for part in model.modules() if isinstance(part, (nn.Linear, nn.Conv2d))][-1]
    kept: list[torch.Tensor] = []
    hook = last.register_forward_hook(lambda _, given, __: kept.append(given[0].detach()))
    with torch.no_grad():
        model(data.inputs)
        hook.remove()
        spread = kept[0].flatten(2).mean(2) if kept[0].ndim > 2 else kept[0]
        difference = spread[1] - spread[0]
        length = max(float(difference.square().sum()), 1e-12)
        weight = torch.zeros_like(last.weight)
        middle = float((spread.mean(0) * difference).sum()) / length
        for label, sign in ((1, -1.0), (2, 1.0)):
            weight[label] = (sign * difference / length).reshape(weight[label].shape)
        last.weight.copy_(weight)
        last.bias.copy_(torch.zeros_like(last.bias) - 1)
        last.bias[1], last.bias[2] = middle, -middle
        assert model(data.inputs).argmax(1).tolist() == data.labels.tolist()
    return model


@pytest.fixture(scope="module")
def ten_classes(small):
    torch.manual_seed(0)
    return {"VANILLA": fitted(vgg16(10), small), "PAT": fitted(shared_relus(10), small)}


def check_finite(document, models):
    """Check that there are numbers, of the given models alone, with a difference or the reason for none."""
    assert document["models"] == list(models)
    known = [line for line in document["lines"] if line["ours"] is not None]
    assert known
    assert all(math.isfinite(line["ours"]) for line in known)
    for line in document["lines"]:
        assert line["model"] in {None, *models}
        compared = line["published"] is not None and line["ours"] is not None and not line["no_difference"]
        assert (line["difference"] is not None) == compared


def run(name, models, data, data_set, **more):
    given = {**models, data_set: (data.inputs, data.labels)}
    return davylamp.reproduce(name, quick=True, rows=given, limit=2, **more).document


def check_lines(document, published, models, data_set):
    """Check that every line is beside the row of its model, with the difference to its number."""
    assert "for no model" not in document["stand_ins"]
    compared = [line for line in document["lines"] if line["published"] is not None]
    assert compared
    rows = load_rows(published)
    for line in compared:
        labels = line["labels"]
        assert labels["model"] in models
        assert line["row"].startswith((labels["model"], f"white {labels['model']}", f"black {labels['model']}"))
        theirs = [row for row in rows if labels.items() <= row.items() and line["column"] in {**row, "AAW": 0}]
        assert len(theirs) == 1
        known = {**theirs[0], "AAW": theirs[0].get("AAW")}
        assert known[line["column"]] == line["published"]
        if line["ours"] is not None and not line["no_difference"]:
            assert line["difference"] == pytest.approx(line["ours"] - line["published"])
    return compared


@pytest.mark.parametrize("number", [2, 3, 4, 5, 6, 7, 9])
def test_aisafety_models(number, ten_classes, small):
    name, data_set = f"aisafety-table{number}", "CIFAR-10" if number == 6 else "SVHN"
    document = run(name, ten_classes, small, data_set)
    compared = check_lines(document, f"aisafety_table{number}", ten_classes, data_set)
    assert document["stand_ins"] == "Models and data are the paper's."
    assert {line["labels"].get("dataset", data_set) for line in compared} == {data_set}
    models = {line["labels"]["model"] for line in compared}
    assert models == ({"PAT"} if number == 4 else set(ten_classes))
    assert all(line["no_difference"] == "" for line in compared)
    attacks = {line["labels"].get("attack") for line in compared}
    if number == 7:
        assert "NATTACK" in attacks
    if number == 3:
        assert attacks == {"NATTACK", "SPSA", "BA"}
        assert "--as Inception-V3=MODEL" in document["left_out"]["PGD-l1"]


def test_the_published_rows_of_other_data_give_no_difference(ten_classes, small):
    document = run("aisafety-table8", ten_classes, small, "SVHN")
    beside = [line for line in document["lines"] if line["published"] is not None]
    assert beside
    assert {line["no_difference"] for line in beside} == {"SVHN, not CIFAR-10"}
    assert all(line["difference"] is None for line in beside)


def test_nat_is_sat(ten_classes, small):
    models = {"VANILLA": ten_classes["VANILLA"], "SAT": ten_classes["PAT"]}
    document = run("aisafety-table4", models, small, "SVHN")
    (line,) = (line for line in document["lines"] if line["symbol"] == "CAV")
    assert line["labels"]["model"] == "NAT"
    assert line["published"] == find_value("aisafety_table4", "CAV", dataset="SVHN", model="NAT")
    assert line["difference"] == pytest.approx(0 - 0.001)  # both models are right on both images


def test_ranges_are_those_of_the_training_part_of_the_same_data(monkeypatch, ten_classes, small):
    asked = []

    def load(classifier, name, limit):
        asked.append((name, limit))
        return small

    monkeypatch.setattr(coverage, "load_data_for", load)
    from types import SimpleNamespace

    def of(name):
        plan = SimpleNamespace(config=SimpleNamespace(data=name), data=SimpleNamespace(load=lambda _: small))
        return coverage._known_images(SimpleNamespace(plan=plan), ten_classes["PAT"], full=False)

    assert torch.equal(of("torchvision:svhn:/data"), small.inputs)
    assert asked == [("torchvision:svhn-train:/data", 2000)]
    assert torch.equal(of("npz:images.npz"), small.inputs)
    assert len(asked) == 1
    assert len(of("digits")) == 1400


@pytest.fixture(scope="module")
def thousand_classes():
    """One of the paper's architectures for photographs and a thin one, two images that both get right."""
    torch.manual_seed(0)
    data = Data(torch.rand(2, 3, 32, 32), torch.tensor([1, 2]), ["a", "b"])
    return {
        "SqueezeNet": fitted(torchvision.models.squeezenet1_1(weights=None), data),
        "MobileNetV3": fitted(vgg16(1000), data),
    }, data


def test_canary_models(thousand_classes, tmp_path):
    """One evaluation: the models' rows, and means over fifteen models, of which a difference would be one of models."""
    models, data = thousand_classes
    for number in (7, 8):
        document = run(f"canary-table{number}", models, data, "ImageNet", out=tmp_path)
        compared = check_lines(document, f"canary_table{number}", models, "ImageNet")
        assert {line["labels"]["model"] for line in compared} == set(models)
        assert all(line["no_difference"] == "" for line in compared)
    assert {"FDL", "FDH", "ALMS"} <= {line["symbol"] for line in compared}
    for name in ("table5", "table4", "figure7"):
        document = run(f"canary-{name}", models, data, "ImageNet", out=tmp_path)
        check_finite(document, models)
        beside = {line["symbol"]: line for line in document["lines"] if line["published"] is not None}
        assert {line["no_difference"] for line in beside.values()} <= {"2 of 15 models"}
        assert bool(beside) == (name != "figure7")
        assert name != "table5" or {"FDL", "FDH", "ALMS"} <= set(beside)


def test_the_distances_of_the_tables_are_the_published_readings():
    """The colour error of ALMS equals piq's; FDL's and FDH's readings are the published method, not the wavelet."""
    import piq

    torch.manual_seed(0)
    images = torch.rand(2, 3, 64, 64)
    changed = (images + 0.05 * torch.randn_like(images)).clamp(0, 1)
    forms = {}
    for name, form in canary_setting.PUBLISHED_FORMS_OF.items():
        reading = METRICS[name].readings[form.partition("@")[2]]
        forms[name] = METRICS[name].function(images, changed, None, reduction="none", **reading.options)
    wanted = piq.multi_scale_gmsd(changed, images, chromatic=True, reduction="none")
    assert torch.allclose(forms["ALMS"].double(), wanted.double(), atol=1e-4)
    wavelet = low_frequency_distortion(images, changed, reduction="none").double()
    assert not torch.allclose(forms["FDL"].double(), wavelet, rtol=0.1)


def test_fooling_models_meet_their_own_rows(thousand_classes):
    models, data = thousand_classes
    models = {"GoogLeNet": models["SqueezeNet"], "ResNet-152": models["MobileNetV3"]}
    document = run("fooling-table1", models, data, "ImageNet")
    compared = check_lines(document, "fooling_table1", models, "ImageNet")
    assert {line["labels"]["model"] for line in compared} == set(models)
    assert "GD-UAP" in {line["labels"]["attack"] for line in compared}
    assert all(line["no_difference"] == "" for line in compared)
    assert fooling_setting.recognise("torchvision:vgg19") == Counterpart("VGG-19")  # other weights than Caffe's


def test_robic_models_meet_their_own_rows(thousand_classes):
    models, data = thousand_classes
    models = {"EfficientNet AdvProp": models["SqueezeNet"], "ResNet50 (timm)": models["MobileNetV3"]}
    document = run("robic-table2", models, data, "ImageNet")
    compared = check_lines(document, "robic_table2", models, "ImageNet")
    assert {line["labels"]["model"] for line in compared} == set(models)
    assert {line["published"] for line in compared if line["symbol"] == "D_half_white"} == {0.31, 0.15}


def test_every_model_of_robic_has_a_name_that_meets_its_row():
    import timm

    named = {row: name for name, row in table2._NAMES.items()}
    rows = {row["model"]: row["parameters"] for row in load_rows("robic_table2")}
    assert set(named) == set(rows) - {"ResNet50 AdvTrain", "ResNet50 (timm)"}  # weights that timm has replaced
    for row, name in named.items():
        assert table2.recognise(name) == Counterpart(row, same=True)
        source, _, rest = name.partition(":")
        if source == "timm":
            with torch.device("meta"):
                net = timm.create_model(rest)
            millions = sum(part.numel() for part in net.parameters()) / 1e6
            assert math.isclose(millions, rows[row], abs_tol=0.0051)
    assert table2.recognise("robustbench:imagenet:Linf:Engstrom2019Robustness") == Counterpart("ResNet50 AdvTrain")
    for later in ("timm:resnet50", "timm:resnet50.a1_in1k", "timm:resnet50.tv_in1k"):  # other weights than in 2021
        assert table2.recognise(later) == Counterpart("ResNet50 (timm)")
    assert table2.recognise("timm:efficientnet_b0.ra4_e3600_r224_in1k") == Counterpart("EfficientNet")
    for other in ("torchvision:resnet50", "mine.pth+torchvision:resnet50", "torchvision:resnet50:IMAGENET1K_V2"):
        assert table2.recognise(other) == Counterpart("ResNet50 (torchvision)")  # other weights than in 2021
    assert table2.recognise("timm:tf_efficientnet_b0.in1k") == Counterpart("EfficientNet")
    assert table2.recognise("hf:org/unknown") == Counterpart()


@pytest.mark.parametrize(("number", "data_set"), [(1, "CIFAR-10"), (2, "SVHN")])
def test_hikdeepsec_models(number, data_set, ten_classes, small):
    models = dict(zip(("undefended", "defended"), ten_classes.values(), strict=True))
    document = run(f"hikdeepsec-table{number}", models, small, data_set)
    assert document["stand_ins"] == "Models and data are the paper's."
    for line in document["lines"]:
        assert line["published"] == find_value(f"hikdeepsec_table{number}", line["column"], **line["labels"])
        assert line["no_difference"] == ""


# Figures, of which the papers print no numbers, and tables of means over models -> the paper's model that is run.
OTHERS = {
    **{f"aisafety-figure{number}": "VANILLA" for number in range(2, 8)},
    **dict.fromkeys(("canary-table6", "canary-figure6", "canary-defences"), ""),
    "fooling-figures": "GoogLeNet",
    "robic-figure3": "EfficientNet",
    "robic-table1": "ResNet50",
    **dict.fromkeys(("robic-figure1", "robic-figure2", "robic-figures-ranking"), "EfficientNet"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_figures_and_means_over_models(name, ten_classes, thousand_classes, small):
    models, data = thousand_classes
    paper, _, _ = name.partition("-")
    data_set = {"aisafety": "SVHN" if name == "aisafety-figure5" else "CIFAR-10"}.get(paper, "ImageNet")
    if paper == "aisafety":
        models, data = ten_classes, small
    elif paper == "robic":
        torch.manual_seed(0)
        models = {"": fitted(efficientnet(1000), data)}
    if OTHERS[name]:
        models = {OTHERS[name]: next(iter(models.values()))}
    if name == "canary-defences":  # the paper names no model
        given = {"models": models, "data": (data.inputs, data.labels)}
        document = davylamp.reproduce(name, quick=True, limit=2, **given).document
    else:
        document = run(name, models, data, data_set)
        assert document["stand_ins"] == "Models and data are the paper's."
    check_finite(document, models)


def test_every_reproduction_has_such_a_test():
    of_numbers = {f"canary-{name}" for name in ("table4", "table5", "table7", "table8", "figure7")}
    of_numbers |= {"fooling-table1", "robic-table2"}
    of_numbers |= {*(f"aisafety-table{number}" for number in range(2, 10)), "hikdeepsec-table1", "hikdeepsec-table2"}
    assert of_numbers | set(OTHERS) == {name for name, table in TABLES.items() if table.runs_models}


def test_names_and_functions_say_their_rows_too(run, tmp_path, ten_classes, small):
    """The command line with a file's function; a model without a row; what cannot be."""
    (tmp_path / "net.py").write_text(
        "import torch\n"
        "def net():\n    torch.manual_seed(0)\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10))\n"
    )
    import json

    import numpy as np

    np.savez(tmp_path / "x.npz", inputs=small.inputs.numpy(), labels=small.labels.numpy())
    words = ("reproduce", "aisafety-table4", "--quick", "--limit", 2, "--json")
    code, out, err = run(*words, "--as", "VANILLA=net.py:net", "--as", "PAT=net.py:net+jpeg", "--as", "SVHN=npz:x.npz")
    assert code == 0, err
    document = json.loads(out)
    assert {(line["labels"]["model"], line["labels"]["dataset"]) for line in document["lines"]} == {("PAT", "SVHN")}
    assert all(line["no_difference"] == "" for line in document["lines"])
    code, out, err = run(*words, "--models", "net.py:net,net.py:net+jpeg", "--data", "npz:x.npz")
    assert code == 0, err
    document = json.loads(out)
    assert document["stand_ins"].startswith("Stand-ins: net.py:net, net.py:net+jpeg for no model of the paper; npz:x")
    assert all(line["published"] is None for line in document["lines"])
    for more, message in (
        (("--as", "PTA=net.py:net"), "PAT"),
        (("--as", "PAT"), "--as NAME=MODEL"),
        (("--as", "SVHN=npz:x.npz", "--data", "npz:y.npz"), "npz:y.npz"),
        (("--as", "SVHN=npz:x.npz", "--as", "CIFAR-10=npz:x.npz"), "one data set"),
    ):
        code, out, err = run(*words, *more)
        assert (code, out) == (1, "")
        assert message in err
        assert err.count("\n") == 1


def test_python_refuses_what_cannot_be(ten_classes, small):
    with pytest.raises(UnknownName):
        davylamp.reproduce("aisafety-table2", quick=True, rows={"PTA": ten_classes["PAT"]})
    with pytest.raises(InvalidInput):
        davylamp.reproduce("aisafety-table2", quick=True, rows={"PAT": ten_classes["PAT"], "VANILLA": "net.py:net"})
    settled = Options(rows={"PAT": "a", "SVHN": "b"}, models=("c",)).settled
    assert (settled.models, settled.data, settled.data_set, settled.rows) == (("c", "a"), "b", "SVHN", {"PAT": "a"})
    assert settled.settled == settled
    assert isinstance(settled.rows, Mapping)
