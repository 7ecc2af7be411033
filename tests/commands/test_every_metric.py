"""Every metric can be had by the command that `davylamp metrics NAME` names."""

import json

from davylamp.engine.metric_names import metric_command
from davylamp.metrics import METRICS

FILE = """
import torch
from torch import nn

class SqueezeNet(nn.Module):  # a name whose layer for the attention is known
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.features = nn.Sequential(nn.Conv2d(3, 6, 5, stride=4), nn.ReLU())
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(54, 10))

    def forward(self, inputs):
        return self.head(self.features(inputs))

def first():
    return SqueezeNet(0)

def second():
    model = SqueezeNet(0)
    torch.manual_seed(1)
    model.head[2].weight.data += 0.02 * torch.randn(10, 54)
    return model

def data():
    torch.manual_seed(2)
    coarse = torch.rand(6, 3, 4, 4)
    images = nn.functional.interpolate(coarse, size=(72, 72), mode="bilinear") * 0.6 + 0.2
    images = images + 0.1 * torch.rand(6, 3, 72, 72)
    with torch.no_grad():
        return images, first()(images).argmax(1)
"""
HIERARCHY = {"even": ["0", "2", "4", "6", "8"], "odd": {"low": ["1", "3"], "high": ["5", "7", "9"]}}
WITHOUT_WEIGHTS = ("ADMS", "ADMSV")  # DISTS needs VGG16's weights, which are not here

WITHOUT_VALUE = (
    "AAB",
    "surrogate_forwards",
    "surrogate_backwards",
    "fit_forwards",
    "fit_backwards",
    "fit_seconds",
)  # no such attack


def test_every_metric_is_reached(run, tmp_path):
    (tmp_path / "nets.py").write_text(FILE)
    (tmp_path / "tree.json").write_text(json.dumps(HIERARCHY))
    attacks = ("--attacks", "foolbox:pgd", "--attacks", "torchattacks:fgsm", "--epsilon", "0.3")
    shared = ("--models", "nets.py:first", "--models", "nets.py:second", "--data", "nets.py:data", "-o", "out")
    names = ("all", "coverage", "boundary:directions=2,spacing=42", "neurons", "consistency", "ALD@inf", "QI_Vis@0.3")
    groups = [each for name in names for each in ("--metric", name)]
    more = ("--neuron-profile", "nets.py:data", "--hierarchy", "tree.json", "--transfer", "full", "--param", "steps=3")
    code, _, err = run("evaluate", *attacks, *shared, *groups, *more)
    assert code == 0, err
    code, _, err = run(
        "evaluate", *attacks[:2], *attacks[4:], "--target", "least-likely", *shared, "--hierarchy", "tree.json"
    )
    assert code == 0, err
    code, _, err = run("evaluate", "--attacks", "foolbox:ddn", "--param", "steps=40", *shared)
    assert code == 0, err
    commands = {symbol: metric_command(symbol).shown_by.removeprefix("davylamp ") for symbol in METRICS}
    shown = {"table FOLDER --metric": ("table", "out"), "table FOLDER --defence ORIGINAL DEFENDED --metric":
             ("table", "out", "--defence", "nets.py:first", "nets.py:second")}  # fmt: skip
    for command, start in shown.items():
        symbols = [symbol for symbol, by in commands.items() if by == command and symbol not in WITHOUT_WEIGHTS]
        code, out, err = run(*start, "--metric", ",".join(symbols), "--bootstrap", "0", "--json")
        assert code == 0, err
        lines = json.loads(out)["rows"]
        for symbol in symbols:
            name = "FR@5" if symbol == "FR@K" else symbol
            assert any(line["metrics"][name]["value"] is not None for line in lines) or symbol in WITHOUT_VALUE, symbol
    corrupted = [symbol for symbol, by in commands.items() if by.startswith("corruptions run")]
    assert set(corrupted) == {"CE", "mCE", "RmCE", "FP", "mFR"}
    options = ("--data", "nets.py:data", "--corruption", "fog", "--severity", "1,2", "--sequence", "brightness,scale")
    for by, symbols in (("models", ("mCE", "RmCE", "FP", "mFR")), ("corruptions", ("CE", "FP"))):
        code, out, err = run(
            "corruptions", "run", "nets.py:first", *options, "--baseline", "nets.py:second", "--by", by, "--json"
        )
        assert code == 0, err
        assert set(symbols) <= set(json.loads(out)["rows"][0]["metrics"])
    symbols = ["QI_Wup@0.5", "ALD@inf", "QI_Vis@0.3", "KMNCov@clean", "NS@head.2"]
    code, out, _ = run("table", "out", "--metric", ",".join(symbols), "--json")
    assert code == 0
    lines = json.loads(out)["rows"]
    for symbol in symbols:
        assert any(line["metrics"][symbol]["n"] for line in lines), symbol
