"""Steps that cannot reach the edge of the ball are named before they run; a search without a step size reaches it."""

import numpy as np
import pytest

from davylamp.adapters import ThreatModel, find_implementation, run_attack
from davylamp.adapters.catalogue.lookup import library_defaults
from davylamp.adapters.catalogue.step_reach import max_step_distance, note_library_step, short_steps_warning
from davylamp.adapters.catalogue.step_size import resolve_step_size
from davylamp.engine import AttackChoice, Config, make_plan, search_radius
from davylamp.engine.plan.cells import short_steps_warnings

LINF = ThreatModel("linf", 8 / 255)


@pytest.mark.parametrize(
    ("name", "threat_model", "parameters", "reach"),
    [
        ("foolbox:pgd", LINF, {"steps": 20}, 20 / 30),
        ("foolbox:pgd", LINF, {}, 40 / 30),
        ("foolbox:pgd", LINF, {"steps": 4, "step_size": 1 / 255}, 0.5),
        ("foolbox:pgd", ThreatModel("l2", 3.0), {"steps": 10, "step_size": 0.1}, 1 / 3),
        ("foolbox:pgd", ThreatModel("l1", 12.0), {"steps": 10, "step_size": "0.05 epsilon"}, 0.5),
        ("torchattacks:pgd", ThreatModel("linf", 64 / 255), {}, 20 / 64),
        ("art:pgd", LINF, {"steps": 1, "step_size": "2.5 epsilon / steps"}, 1),
        ("torchattacks:mi-fgsm", ThreatModel("linf", 64 / 255), {"steps": 10, "step_size": 2 / 255}, 20 / 64),
        ("torchattacks:spsa", ThreatModel("linf", 0.1), {"steps": 5, "learning_rate": 0.01}, 0.5),
        ("best", ThreatModel("linf"), {"steps": 20}, 20 / 30),
    ],
)
def test_the_reach_is_steps_times_step_size_in_units_of_the_radius(name, threat_model, parameters, reach):
    row = find_implementation("foolbox:pgd" if name == "best" else name)
    assert max_step_distance(row, threat_model, parameters) == pytest.approx(reach, rel=1e-3)
    line = short_steps_warning(row, threat_model, parameters)
    assert (line is not None) == (reach < 1)
    assert line is None or ("\n" not in line and f"reach {reach:.2g} of the radius" in line)


@pytest.mark.parametrize(
    ("name", "threat_model", "parameters"),
    [
        ("foolbox:fgsm", LINF, {}),
        ("foolbox:ddn", ThreatModel("l2"), {}),
        ("foolbox:pgd", ThreatModel("linf"), {"steps": 2, "step_size": 0.01}),
        ("foolbox:pgd", LINF, {"step_size": "nonsense"}),
    ],
)
def test_what_cannot_be_compared_is_not_named(name, threat_model, parameters):
    assert short_steps_warning(find_implementation(name), threat_model, parameters) is None


def test_what_is_named_out_of_reach_moves_no_farther(digits):
    """The warning is about something: 20 steps of Foolbox's own end at two thirds of the radius."""
    ball = ThreatModel("linf", 0.3)
    result = run_attack(
        "foolbox:pgd", digits.classifier, digits.inputs, digits.labels, ball, steps=20, random_start=False
    )
    assert result.distances.linf.max() == pytest.approx(0.2, rel=1e-3)


def test_the_step_size_that_foolbox_takes_from_the_radius_is_told():
    assert library_defaults(find_implementation("foolbox:pgd"), "linf")["step_size"] == "0.03333 epsilon"
    assert library_defaults(find_implementation("foolbox:bim"), "linf")["step_size"] == "0.2 epsilon"
    assert library_defaults(find_implementation("adv-lib:pgd"), "linf")["step_size"] == "0.03333 epsilon"


def test_a_plan_names_each_row_once(digits, images):
    choices = [
        AttackChoice("foolbox:pgd", "linf", 0.1, parameters={"steps": 20}, defaults=True),
        AttackChoice("best(foolbox:pgd)", "linf", parameters={"steps": 20}, defaults=True),
        AttackChoice("best(foolbox:pgd)", "linf", parameters={"steps": 20}),
    ]
    models = {"a": digits.classifier, "b": digits.classifier}
    plan = make_plan(Config(attacks=tuple(choices), seeds=(0, 1)), models=models, data=images)
    (line,) = short_steps_warnings(plan.cells)
    assert line.startswith("foolbox:pgd: its steps together reach 0.67 of the radius")


def test_a_search_that_is_given_no_step_size_reaches_its_ball(digits):
    given = ("foolbox:pgd", digits.classifier, digits.inputs, digits.labels, ThreatModel("linf"))
    settings = {"steps": 5, "random_start": False, "rounds": 5}
    short = search_radius(*given, reach=False, **settings)
    result = search_radius(*given, **settings)
    known = search_radius(*given, step_size="2.5 epsilon / steps", **settings)
    assert result.parameters["step_size"] == "2.5 epsilon / steps"
    assert result.budget.tolist() == known.budget.tolist()
    assert result.budget.median() < short.budget.median()
    kept = search_radius(*given, step_size=0.001, **settings)
    assert kept.parameters["step_size"] == 0.001


def test_a_command_names_it_before_it_runs(run, tmp_path):
    model, data = tmp_path / "net.py", tmp_path / "d.npz"
    model.write_text(
        "from torch import nn\n"
        "def build():\n"
        "    return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4, 3))\n"
    )
    np.savez(data, images=np.random.default_rng(0).random((3, 4, 4, 1), np.float32), labels=np.array([0, 1, 2]))
    options = ("--norm", "linf", "--epsilon", "0.2", "--steps", "5", "--step-size", "0.01", "--library", "foolbox")
    _, _, err = run("compare", "pgd", "--model", f"{model}:build", "--data", f"npz:{data}", *options)
    assert "- foolbox:pgd: its steps together reach 0.25 of the radius" in err


def test_steps_alone_say_whose_step_size_holds():
    assert (
        max_step_distance(find_implementation("adv-lib:pgd"), ThreatModel("l2", 1.0), {"steps": 10}) is None
    )  # has no l2
    assert "0.03333 epsilon" in note_library_step(find_implementation("foolbox:pgd"), LINF, {"steps": 10})
    for row, given in (("foolbox:pgd", {}), ("foolbox:pgd", {"steps": 1, "step_size": 0.1}), ("foolbox:fgsm", {})):
        assert note_library_step(find_implementation(row), LINF, given) is None


@pytest.mark.parametrize(("steps", "length"), [(1, 0.1), (2, 0.1), (3, 2.5 * 0.1 / 3), (40, 2.5 * 0.1 / 40)])
def test_a_length_in_steps_is_at_most_the_radius(steps, length):
    assert resolve_step_size({"steps": steps, "step_size": "2.5 epsilon / steps"}, 0.1)["step_size"] == length
    assert resolve_step_size({"steps": steps, "step_size": "2 epsilon"}, 0.1)["step_size"] == 0.2
