"""What was learned once, as the gallery shows it: the kept numbers themselves, with their cost and origin."""

import base64
import io
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from davylamp.adapters.data.datasets import Data
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.store.other_records import load_fitted
from davylamp.report.page.build import build_report
from davylamp.report.parts.report_data import read_folder
from davylamp.report.sections.gallery import _around_grey, _changes, _first_images, _magnify, show_learned

ATTACKS = (
    AttackChoice("davylamp:gd-uap", "linf", 0.2, parameters={"steps": 2}),
    AttackChoice("davylamp:advgan", "linf", 0.1, parameters={"epochs": 1}),
    AttackChoice("davylamp:tremba", "linf", 0.1, parameters={"steps": 1, "samples": 2, "epochs": 1}),
)


@pytest.fixture(scope="module")
def folder(digits, tmp_path_factory):
    images = Data(digits.inputs, digits.labels, [f"digit_{i}" for i in range(len(digits.labels))])
    path = tmp_path_factory.mktemp("learned")
    config = Config(attacks=ATTACKS, data="digits", measures=("effect",), fit_data="others")
    others = Data(digits.inputs.flip(0)[:6] * 0.99, digits.labels.flip(0)[:6], [f"other_{i}" for i in range(6)])
    plan = make_plan(config, models={"cnn": digits.classifier}, data=images, fit_data=others)
    assert evaluate(plan, ResultsStore(path)).failed == {}
    return path


def test_each_fitting_has_a_row_with_what_it_cost_and_learned_from(folder):
    (grid,) = show_learned(read_folder(folder))
    fits = {fitted.implementation: fitted for fitted in load_fitted(folder).values()}
    assert len(grid.rows) == len(fits) == 3
    for label, shown in grid.rows:
        name = label.split()[0].rstrip(":")
        fitted = fits[name]
        assert f"{fitted.forwards} forward and {fitted.backwards} backward queries" in label
        assert f"fitted on {fitted.model}" in label
        assert f"from {fitted.images} images" in label or (fitted.images == 0 and "from no image" in label)
        assert len(shown) == (1 if name == "davylamp:gd-uap" else 3)
        for each in shown:
            assert re.search(r"change x \d", each.title)
            picture = Image.open(io.BytesIO(base64.b64decode(each.uri.partition("base64,")[2])))
            assert picture.size == (112, 112)  # 16 pixels, each as 7 x 7
    page = build_report(folder)
    assert all(label in page for label, _ in grid.rows)
    assert "fitted on others (6)" in page


def test_the_pictures_are_of_the_kept_numbers(folder, digits):
    read = read_folder(folder)
    by_name = {fitted.implementation: fitted for fitted in load_fitted(folder).values()}
    ((_, change),) = _changes(by_name["davylamp:gd-uap"], [])
    assert np.array_equal(change, by_name["davylamp:gd-uap"].arrays["perturbation"])
    outcome = next(each for each in read.outcomes.done if each.cell.row.attack == "advgan")
    images = _first_images(read, outcome)
    assert np.abs(images[0][1] - digits.inputs[0].numpy()).max() <= 0.5 / 255 + 1e-6
    changes = [change for _, change in _changes(by_name["davylamp:advgan"], images)]
    assert all(0 < np.abs(change).max() <= 0.1 + 1e-6 for change in changes)
    assert np.abs(changes[0] - changes[1]).max() > 0
    unfit = replace(by_name["davylamp:advgan"], arrays={"generator.0.weight": np.zeros((1, 1), np.float32)})
    assert [*_changes(unfit, images)] == []


def test_a_change_is_amplified_around_grey_and_magnified_by_whole_numbers():
    change = torch.tensor([[[0.1, -0.05], [0.0, -0.1]]]).numpy()
    pixels = _around_grey(change)
    assert pixels[..., 0].tolist() == [[255, 64], [128, 0]]
    assert pixels.shape == (2, 2, 3)
    large = _magnify(pixels, 5)
    assert large.shape == (4, 4, 3)
    assert (large[:2, :2] == 255).all()
    assert (large[2:, 2:] == 0).all()
    assert _around_grey(np.zeros((3, 2, 2), np.float32)).max() == 128
