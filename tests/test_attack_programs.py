"""The benchmark of davylamp's attacks: its numbers, and programs that are called from a checkout."""

import sys

import pytest
import torch

from davylamp.adapters.data.datasets import Data
from davylamp.tools.speed import attacks, programs

RAYS = """
import torch
from pgbar import progress_bar


class RayS:
    def __init__(self, model):
        self.model = model

    def attack_hard_label(self, x, y, query_limit):
        progress_bar(1, 2, "half way")
        assert x.cuda() is x
        assert (self.model.predict_label(x) == y).all()
        return x * 0.9 + 0.05, None
"""


@pytest.fixture
def small(digits, monkeypatch):
    """Three of the digits in place of the benchmark's forty."""
    data = Data(digits.inputs[:3], digits.labels[:3], list("abc"))
    monkeypatch.setattr(attacks, "load_small_model", lambda _: digits.classifier)
    monkeypatch.setattr(attacks, "load_digits_data", lambda _: data)
    return digits.first(3)


def test_every_attack_is_measured(small, capsys, tmp_path):
    attacks.main(["--quick", "--json", str(tmp_path / "figures.json")])
    printed = capsys.readouterr().out
    for attack in attacks.SETTINGS:
        assert f"{attack} on digits, 3 images" in printed
    assert "bp on digits, 3 images, steps 10: fooled: 1 " in printed
    assert "bp on digits, 3 images, steps 10: median passes of an image: 19 " in printed
    assert (tmp_path / "figures.json").stat().st_size > 1000


def test_a_program_is_run_from_its_checkout(small, tmp_path, capsys):
    (tmp_path / "RayS.py").write_text(RAYS, encoding="utf-8")
    path = list(sys.path)
    images = programs.run_rays(tmp_path, small.classifier, small.inputs, small.labels, max_queries=5)
    torch.testing.assert_close(images, small.inputs * 0.9 + 0.05)
    assert capsys.readouterr().out == ""
    assert "RayS" not in sys.modules
    assert "pgbar" not in sys.modules
    assert sys.path == path
    case = attacks.Victim(small.classifier, small.inputs, small.labels)
    setting = attacks.SETTINGS["rays"]
    figures = attacks.measure("rays", setting, case, "digits", given={"max_queries": 5}, folder=tmp_path)
    names = [figure.name for figure in figures]
    assert any("the program's median linf distance" in name or "the program's fooled" in name for name in names)


def test_a_checkout_that_is_not_there_is_named(small, tmp_path):
    with pytest.raises(FileNotFoundError, match="expected a folder with a checkout"):
        programs.run_nattack(
            tmp_path / "nowhere", small.classifier, small.inputs, small.labels, epsilon=0.1, steps=1, samples=1
        )
