"""Without a largest radius a search goes on to the largest change there can be, or says where it stopped."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from davylamp.adapters import Classifier, ThreatModel
from davylamp.adapters.data.datasets import Data
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan, search_radius
from davylamp.engine.searches import radius_search as search
from davylamp.engine.tables.budget_curves import build_curves

PGD = {"steps": 5, "step_size": "2.5 epsilon / steps", "random_start": False}
SIDE = 8


class Mean(nn.Module):
    """Class 1 where the mean grey value passes a threshold: every pixel has to move as far."""

    def __init__(self, threshold):
        super().__init__()
        self.threshold = threshold

    def forward(self, inputs):
        margin = 10 * (inputs.mean((1, 2, 3)) - self.threshold)
        return torch.stack([-margin, margin], 1)


def case(*levels, threshold=0.95):
    inputs = torch.tensor(levels)[:, None, None, None].expand(-1, 1, SIDE, SIDE).contiguous()
    return Classifier(Mean(threshold)), inputs, torch.zeros(len(levels), dtype=torch.int64)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("together", [True, False])
def test_images_beyond_16_customary_radii_are_found_at_their_least_change(monkeypatch, norm, together):
    if not together:
        monkeypatch.setattr(search, "supports_per_image_radii", lambda *_: False)
    levels = (0.05, 0.3, 0.6, 0.8)
    result = search_radius("foolbox:pgd", *case(*levels), ThreatModel(norm), rounds=6, **PGD)
    least = (0.95 - torch.tensor(levels, dtype=torch.double)) * (1 if norm == "linf" else SIDE)
    assert (least > result.upper).sum() >= 3
    assert result.success.all()
    assert (result.budget >= least - 1e-6).all()
    step = (1 if norm == "linf" else SIDE) / 2**6
    assert (result.budget <= least + step).all()
    assert (result.forwards == result.runs * 6).all()  # 5 steps and Foolbox's own check
    assert result.backwards.tolist() == (result.runs * 5).tolist()


def test_an_image_that_is_fooled_earlier_costs_and_gives_what_it_did(digits, monkeypatch):
    model = Classifier(digits.module)
    given = ("foolbox:pgd", model, digits.inputs, digits.labels, ThreatModel("l2"))
    parameters = {"steps": 1, "step_size": "0.2 epsilon", "random_start": False, "rounds": 4}
    wide = search_radius(*given, **parameters)
    monkeypatch.setattr(search, "wider_radii", lambda *_: [])
    narrow = search_radius(*given, **parameters)
    fooled = narrow.success
    assert fooled.any()
    assert (wide.success & ~fooled).any()
    for name in ("budget", "forwards", "backwards", "runs", "adv_inputs", "success_8bit"):
        assert torch.equal(getattr(wide, name)[fooled], getattr(narrow, name)[fooled])
    assert (wide.runs[~fooled] > narrow.runs[~fooled]).all()


def test_what_nothing_fools_is_searched_to_the_end_and_a_given_radius_stays_the_limit():
    hard = case(0.1, 0.8, threshold=1.5)
    result = search_radius("foolbox:pgd", *hard, ThreatModel("linf"), rounds=3, **PGD)
    assert result.searched.tolist() == [math.inf] * 2
    assert result.runs.tolist() == [3, 3]  # at 64/255, 128/255 and 1
    assert result.budget.tolist() == [math.inf] * 2
    assert result.robust.all()
    given = search_radius("foolbox:pgd", *hard, ThreatModel("linf", 0.25), rounds=3, **PGD)
    assert given.searched.tolist() == [0.25] * 2
    assert given.runs.tolist() == [1, 1]


@pytest.mark.parametrize("limit", [11, 15, 22, 30])
def test_a_query_limit_counts_what_is_beyond_too(limit):
    result = search_radius(
        "foolbox:pgd", *case(0.1, 0.8, threshold=1.5), ThreatModel("linf"), rounds=3, max_queries=limit, **PGD
    )
    assert (result.forwards + result.backwards).tolist() == [limit] * 2
    assert result.searched.tolist() == [{1: 64 / 255, 2: 128 / 255, 3: math.inf}[-(-limit // 11)]] * 2


def test_all_settings_of_a_grid_are_tried_beyond():
    settings = {"steps": 5, "random_start": False, "rounds": 4}
    sizes = ["0.01 epsilon", "2.5 epsilon / steps"]
    result = search_radius("foolbox:pgd", *case(0.05, 0.8), ThreatModel("linf"), grid={"step_size": sizes}, **settings)
    assert result.success.all()
    assert result.chosen == ({"step_size": sizes[1]},) * 2


@pytest.mark.parametrize("levels", [(0.05, 0.3, 0.8), (0.05, 0.1)])
def test_progress_still_adds_up_to_the_images(levels):
    reports = []
    search_radius("foolbox:pgd", *case(*levels), ThreatModel("linf"), rounds=2, progress=reports.append, **PGD)
    assert sum(reports) == len(levels)
    assert min(reports) >= 0


def test_a_curve_ends_where_the_search_did_and_says_so(tmp_path):
    classifier, inputs, labels = case(0.5, 0.85, 0.9)
    data = Data(inputs, labels, ["a", "b", "c"])
    choices = [AttackChoice("best(foolbox:pgd)", "linf", epsilon, parameters=PGD) for epsilon in (0.2, None)]
    plan = make_plan(Config(attacks=tuple(choices), measures=("effect",)), models={"m": classifier}, data=data)
    evaluate(plan, ResultsStore(tmp_path))
    curves = build_curves(tmp_path, bootstrap=0)
    short, whole = sorted(curves.curves, key=lambda curve: curve.budgets[-1])
    assert short.budgets[-1] == 0.2
    assert short.accuracy[-1] == pytest.approx(1 / 3)
    assert whole.budgets[-1] == pytest.approx(0.45, abs=0.01)
    assert whole.accuracy[-1] == 0
    assert not np.isinf(whole.empirical_half)
    assert curves.notes == ("best(foolbox:pgd) on m: the search stopped at 0.2 for some images that it did not fool",)
