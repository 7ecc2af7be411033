"""A thing has one name from one folder, and fewer images than were asked for are said in a line."""

import pytest

from davylamp.adapters.paths import name_from_here
from davylamp.engine import AttackChoice, Config, make_plan

FGSM = AttackChoice("foolbox:fgsm", "linf", 0.1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("{here}/net.py:make", "net.py:make"),
        ("./net.py:make", "net.py:make"),
        ("net.py:make", "net.py:make"),
        ("{here}/net.py:make+{here}/sub/defence.py:defend", "net.py:make+sub/defence.py:defend"),
        ("state.pth+{here}/net.py:make", "state.pth+net.py:make"),
        ("onnx:{here}/net.onnx", "onnx:net.onnx"),
        ("imagefolder:{here}/images", "imagefolder:images"),
        ("/elsewhere/net.py:make", "/elsewhere/net.py:make"),
        ("{here}-beside/net.py:make", "{here}-beside/net.py:make"),
        ("hf:./folder", "hf:./folder"),
        ("http://127.0.0.1:8000/v2/models/net", "http://127.0.0.1:8000/v2/models/net"),
        ("demo:mnist+input:crop=24,mean=0.5,std=0.5", "demo:mnist+input:crop=24,mean=0.5,std=0.5"),
    ],
)
def test_a_path_inside_the_working_folder_is_named_from_there(name, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert name_from_here(name.format(here=tmp_path)) == expected.format(here=tmp_path)


def test_a_model_by_its_relative_and_its_absolute_path_is_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\ndef make():\n"
        "    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))\n"
        "    net[1].weight.data.fill_(0.1)\n    net[1].bias.data.zero_()\n    return net\n"
    )
    names = "net.py:make", f"{tmp_path}/net.py:make"
    plans = [make_plan(Config(attacks=(FGSM,), models=(name,), data="demo:mnist", limit=2)) for name in names]
    assert plans[0].cells[0].key == plans[1].cells[0].key
    both = make_plan(Config(attacks=(FGSM,), models=names, data="demo:mnist", limit=2))
    assert len(both.subjects) == len(both.cells) == 1


def test_fewer_images_than_asked_for_are_a_note():
    asked = Config(attacks=(FGSM,), models=("demo:mnist-lenet5",), data="demo:mnist")
    counts = {limit: make_plan(asked.__class__(**{**vars(asked), "limit": limit})) for limit in (None, 5, 20, 100)}
    assert {limit: len(plan.notes) for limit, plan in counts.items()} == {None: 0, 5: 0, 20: 0, 100: 1}
    assert {"20", "100"} <= set(counts[100].notes[0].split())
