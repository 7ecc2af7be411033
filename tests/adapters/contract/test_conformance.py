"""Every row on planted models: what it reports is so; and the check would notice if it were not."""

import pytest
import torch

from davylamp.adapters import IMPLEMENTATIONS
from davylamp.adapters.attack import Implementation
from davylamp.adapters.contract.misbehaving_models import PLANTS, make_setting, run_misbehaving_model_checks
from davylamp.adapters.libraries.torchattacks import driver as torchattacks

# Each takes seconds a plant; `davylamp conformance` runs them.
SLOW = (
    "zoo",
    "wasserstein",
    "hopskipjump",
    "geoda",
    "sign-opt",
    "pointwise",
    "brendel",
    "virtual",
    "art:cw",
    "art:ead",
)
ROWS = [name for name, row in IMPLEMENTATIONS.items() if not row.broken and not any(slow in name for slow in SLOW)]
# The radius is four times the least perturbation: fewer steps than by the command suffice.
FEWER = {"steps": 5, "binary_search_steps": 2, "max_queries": 60, "epochs": 2}
THOROUGH = ("art:pgd", "foolbox:cw", "torchattacks:pgd", "foolbox:linear-blend", "torchattacks:square")


@pytest.mark.parametrize("name", ROWS)
def test_no_row_reports_a_false_result(name):
    plants = list(PLANTS) if name in THOROUGH else ["nan", "saturated"]
    parameters = {} if name in (*THOROUGH, "torchattack:ilpd") else FEWER  # ILPD fools one image in its tenth step
    findings = list(run_misbehaving_model_checks([name], plants=plants, every_norm=False, parameters=parameters))
    assert [finding.plant for finding in findings] == plants
    assert [finding for finding in findings if finding.complaint] == []


@pytest.fixture
def liar(monkeypatch):
    """Replace the library by a function of (model, inputs, labels); returns the complaints about it, by plant."""

    def runner(function, kind="pgd"):
        monkeypatch.setattr(torchattacks, "run", lambda attack_class, model, x, y, rules, **_: function(model, x, y))
        row = Implementation(kind, "torchattacks", {"linf": "torchattacks:PGD"})
        return {finding.plant: finding.complaint for finding in run_misbehaving_model_checks([row])}

    return runner


def test_the_plants_are_what_they_say():
    setting = make_setting()
    assert torch.equal(setting.base(setting.inputs).argmax(1), setting.labels)
    assert torch.equal((setting.inputs * 255).round() / 255, setting.inputs)
    for name in ("in-place", "saturated", "lost-by-rounding", "nan"):
        planted = PLANTS[name](setting)
        said = planted.module(setting.inputs.clone())
        torch.testing.assert_close(said, planted.truth(setting.inputs), equal_nan=True, rtol=1e-4, atol=1e-2)
        if name != "in-place":
            assert torch.equal(said.argmax(1), setting.labels), name


def test_a_liar_of_every_kind_is_noticed(liar, monkeypatch):
    """With the judge's own eyes shut, the conformance run complains."""
    noise = lambda model, x, y: (model(x), x + 4e-4 * torch.randn_like(x).sign())[1]  # noqa: E731
    assert not any(liar(noise).values())
    blind = "davylamp.adapters.running.attack_state.AttackState.mark_invalid"
    monkeypatch.setattr(blind, lambda *_: None)
    complaints = liar(noise)
    assert "false robust" in complaints["nan"]
    assert "false" in complaints["random"]


def test_the_command_says_what_it_ran(run):
    code, out, err = run("test-attack", "--misbehaving", "torchattacks:fgsm", "--plant", "nan", "--first-norm")
    assert (code, err) == (0, "")
    assert "1 implementation, 1 run: 0 false results" in out
    code, _, err = run("test-attack", "--misbehaving", "torchattacks:fgsm", "--plant", "nam")
    assert code == 1
    assert "unknown misbehaving model 'nam'; did you mean nan" in err
