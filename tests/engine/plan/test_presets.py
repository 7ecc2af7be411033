"""A preset that bears a name has that name's numbers; what is run otherwise is listed."""

import pytest
import torch
from torch import nn

from davylamp.adapters import Classifier, find_implementation
from davylamp.adapters.catalogue.known_issues import known_issues_of
from davylamp.adapters.data.datasets import Data
from davylamp.benchmarks.canary.setting import paper_name, run_name
from davylamp.engine import make_plan
from davylamp.engine.cell_defaults import ALL_MEASURES
from davylamp.engine.plan.presets import PRESETS
from davylamp.engine.searches.kinds import parse_search
from davylamp.metrics import METRICS, record_of


@pytest.mark.parametrize("name", PRESETS)
def test_no_row_with_a_known_finding_without_a_reason(name):
    preset, met = PRESETS[name], set()
    for choice in preset.config.attacks:
        row = find_implementation(parse_search(choice.attack).inside)
        assert not row.broken
        assert choice.norm is not None
        assert choice.norm in row.classes
        met |= set(known_issues_of(row, choice.norm))
    assert met == set(preset.findings)
    for symbol in preset.metrics:
        assert symbol in METRICS or (symbol.startswith("FR@") and symbol[3:].isdigit())
        record = record_of(symbol)
        assert record is None or not {*ALL_MEASURES} & {record.group} - {*preset.config.measures}, symbol
    assert preset.lines()[0] == preset.source
    assert all(attack in preset.lines()[-1] for attack in preset.missing)


@pytest.mark.parametrize(("side", "linf", "l2"), [(32, 8 / 255, 0.5), (64, 8 / 255, 0.5), (224, 4 / 255, 3.0)])
def test_autoattack_has_the_radii_of_robustbench(side, linf, l2):
    torch.manual_seed(0)
    model = Classifier(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 5)), num_classes=5)
    data = Data(torch.rand(2, 3, side, side), torch.zeros(2, dtype=torch.int64), ["a", "b"])
    plan = make_plan(PRESETS["autoattack"].config, models={"m": model}, data=data)
    assert {cell.threat_model.norm: cell.threat_model.epsilon for cell in plan.cells} == {"linf": linf, "l2": l2}
    assert all(cell.row.fixed["steps"] == 100 for cell in plan.cells)


def test_attacks_of_canary_bear_their_name():
    assert paper_name("davylamp:si-fgsm") == run_name("davylamp:si-fgsm") == "SI-FGSM"
    assert run_name("foolbox:pgd") == "PGD"
    assert "SI-FGSM" not in PRESETS["canary"].missing


def test_robic_runs_the_attacks_of_its_benchmark():
    attacks = {choice.attack for choice in PRESETS["robic"].config.attacks}
    assert {"davylamp:bp", "davylamp:surfree", "davylamp:qeba"} <= attacks
    assert PRESETS["robic"].missing == ()


def test_aisafety_has_foolbox_in_l1():
    """ART's steps in l1 move one pixel only: it fooled nothing where Foolbox fooled half."""
    choices = [each for each in PRESETS["aisafety"].config.attacks if each.norm == "l1"]
    assert [(choice.attack, choice.epsilon) for choice in choices] == [("foolbox:pgd", 12)] * 2


def test_aisafety_makes_pgd_once_more_on_another_model():
    """Table III: PGD in three norms, white-box and from an Inception."""
    made = [(each.norm, each.epsilon) for each in PRESETS["aisafety"].config.attacks if each.surrogate]
    pgd = [each for each in PRESETS["aisafety"].config.attacks if each.attack == "foolbox:pgd"]
    assert made == [(each.norm, each.epsilon) for each in pgd if not each.surrogate]
    assert any("Inception" in line for line in PRESETS["aisafety"].lines())
