"""The page of examples/ attacks an image; without Gradio, which only draws it."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

FILE = Path(__file__).parent.parent / "examples" / "app.py"


@pytest.fixture
def app(monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    spec = importlib.util.spec_from_file_location("example_app", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("model", "outcome"), [("demo:digits-cnn", "Fooled"), ("demo:digits-cnn-robust", "Robust")])
def test_it_shows_both_images_and_what_became_of_the_attack(app, model, outcome):
    clean, adversarial, difference, text = app.attack_image(model, 3, "pgd", "foolbox", 0.1)
    assert clean.shape == adversarial.shape == difference.shape == (32, 32, 3)
    assert np.abs(adversarial - clean).max() == pytest.approx(0.1, abs=1e-5)
    assert text.startswith(f"**{outcome}")
    assert "- clean: 2 (" in text
    assert "- queries: 21 forward, 20 backward" in text


def test_every_attack_has_libraries_and_an_error_is_shown(app):
    assert all(app.libraries_of(attack) for attack in app.ATTACKS)
    *_, adversarial, _, text = app.attack_image("demo:digits-cnn", 43, "fgsm", "foolbox", 3.0)
    assert adversarial is None
    assert text.startswith("**Not run**: ")


def test_it_is_short():
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= 150
