"""Where the misclassification ratio stops growing: by the formula of a linear model, and by hand."""

import json
from copy import deepcopy

import pytest
import torch

from davylamp.adapters import ThreatModel, run_attack
from davylamp.adapters.libraries.torchattacks import driver as torchattacks
from davylamp.engine import saturating_budget
from davylamp.engine.searches.saturation import default_budgets
from davylamp.errors import InvalidInput, UnknownName, Unsupported


def saturate(case, name="art:fgsm", norm="linf", **options):
    return saturating_budget(name, case.classifier, case.inputs, case.labels, norm, **options)


def test_the_ratios_of_a_linear_model_are_shares_of_its_least_perturbations(linear):
    least = linear.least["linf"].sort().values.tolist()
    budgets = [value * 1.05 for value in least]
    result = saturate(linear, budgets=[*budgets, 2 * budgets[-1]])
    assert result.ratios == (0.25, 0.5, 0.75, 1, 1)
    assert result.budgets == (*budgets, 2 * budgets[-1])
    assert result.epsilon == budgets[-1]
    assert result.threshold == 0.01


@pytest.mark.parametrize(("threshold", "index"), [(0, 3), (0.2, 3), (0.25, 2), (0.5, 1), (1, 0)])
def test_a_loss_up_to_the_threshold_is_none(linear, threshold, index):
    budgets = [value * 1.05 for value in linear.least["linf"].sort().values.tolist()]
    assert saturate(linear, budgets=budgets, threshold=threshold).epsilon == budgets[index]


def test_the_command_says_what_the_function_finds(run, digits, digits_files):
    where = ("--model", "net.py:build", "--data", "npz:images.npz", "--library", "foolbox,torchattacks")
    options = ("--norm", "linf", "--budget", "0.05,0.1,0.4,0.8")
    code, out, err = run("saturation", "fgsm", *where, *options, "--json")
    assert code == 0, err
    rows = {row["implementation"]: row for row in json.loads(out)["rows"]}
    assert set(rows) == {"foolbox:fgsm", "torchattacks:fgsm"}
    for name, row in rows.items():
        expected = saturate(digits, name, budgets=[0.05, 0.1, 0.4, 0.8])
        assert (row["epsilon"], tuple(row["ratios"]), row["attacked"]) == (expected.epsilon, expected.ratios, 16)
    code, out, _ = run("saturation", "fgsm", *where, *options)
    assert code == 0
    assert "with 16 images a rate of 1 has a 95 % interval of 0.79 to 1.00" in out
    for name, *norm, named in (
        ("fgsm", "--norm", "l0", "fgsm does not support the norm l0"),
        ("foolbox:deepfool", "foolbox:deepfool is a minimum-norm attack"),
    ):
        code, _, err = run("saturation", name, *where, *norm)
        assert (code, named in err) == (1, True)


def test_results_that_prove_nothing_are_named(run, digits, digits_files):
    """Logits so large that the gradient of the softmax is zero."""
    large = deepcopy(digits.module)
    for parameter in large[-1].parameters():
        parameter.data *= 1e4
    torch.save(large, digits_files / "net.pt")
    where = ("--model", "net.py:build", "--data", "npz:images.npz", "--norm", "linf", "--budget", "0.05,0.1")
    code, out, err = run("saturation", "foolbox:fgsm", *where, "--json")
    assert code == 0, err
    (row,) = json.loads(out)["rows"]
    fooled = [round(ratio * row["attacked"]) for ratio in row["ratios"]]
    assert all(0 < violated <= 16 - hits for violated, hits in zip(row["violations"], fooled, strict=True))
    code, out, _ = run("saturation", "foolbox:fgsm", *where)
    assert f"invalid results count as not fooled: {row['violations'][0]} at 0.05" in " ".join(out.split())
    code, out, _ = run("saturation", "foolbox:fgsm", *where, "--latex")
    assert f"{sum(row['violations'])} results are invalid and count as not fooled." in " ".join(out.split())


def test_a_ratio_that_still_grows_has_no_saturating_budget(linear):
    least = linear.least["linf"].sort().values.tolist()
    budgets = [value * 1.05 for value in least[:3]]
    assert saturate(linear, budgets=budgets).epsilon is None
    assert saturate(linear, budgets=[*budgets, least[3] * 0.98]).epsilon == budgets[2]  # seen not to grow
    assert saturate(linear, budgets=[least[0] / 4, least[0] / 2]).epsilon is None


def test_a_flat_start_is_no_saturation_and_the_order_does_not_matter(linear):
    least = linear.least["linf"].sort().values.tolist()
    budgets = [least[3] * 1.05, least[0] / 2, least[3] * 3, least[0] / 4, least[0] / 8]
    result = saturate(linear, budgets=budgets)
    assert result.ratios == (0, 0, 0, 1, 1)
    assert result.epsilon == least[3] * 1.05


def test_the_best_ratio_counts_not_that_of_the_largest_budget(monkeypatch, digits):
    other = digits.inputs[[1, 0, 1, 1]]  # of another class, within 0.9

    def run(attack_class, model, inputs, labels, ball, targets=None, **kwargs):
        count = {0.9: 1, 0.92: 3, 0.94: 4, 0.96: 2}[ball.epsilon]
        return torch.cat([other[:count], inputs[count:]])

    monkeypatch.setattr(torchattacks, "run", run)
    result = saturate(digits.first(4), "torchattacks:pgd", budgets=[0.9, 0.92, 0.94, 0.96])
    assert result.ratios == (0.25, 0.75, 1, 0.5)
    assert result.epsilon == 0.94


def test_each_ratio_is_that_of_one_run_on_the_images_that_are_right(digits):
    labels = digits.labels.clone()
    labels[:4] = (labels[:4] + 1) % 10
    case = digits._replace(labels=labels)
    parameters = {"steps": 4, "random_start": False}
    result = saturate(case, "foolbox:pgd", budgets=[0.02, 0.08], step_size="2 epsilon", **parameters)
    for budget, ratio in zip(result.budgets, result.ratios, strict=True):
        ball = ThreatModel("linf", budget)
        one = run_attack(
            "foolbox:pgd", digits.classifier, case.inputs, labels, ball, step_size=2 * budget, **parameters
        )
        wrong = digits.module(one.adv_inputs).argmax(1) != labels
        assert ratio == pytest.approx(wrong[4:].double().mean().item())


def test_a_targeted_ratio_counts_the_target(digits):
    targets = (digits.labels + 1) % 10
    parameters = {"steps": 4, "step_size": "2.5 epsilon / steps", "budgets": [0.1, 0.2]}
    aimed = saturate(digits, "foolbox:pgd", targets=targets, **parameters)
    assert aimed.ratios < saturate(digits, "foolbox:pgd", **parameters).ratios


def test_thedefault_budgets_double_around_the_customary_radius():
    assert default_budgets("linf", 3072) == pytest.approx([2.0**k / 255 for k in range(-2, 7)])
    assert default_budgets("l0", 3072) == [3, 7, 15, 30, 60, 120, 240, 480]
    assert default_budgets("l0", 48) == [3, 4, 8, 16]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"name": "foolbox:deepfool"}, Unsupported, "foolbox:deepfool"),
        ({"name": "foolbox:spatial", "norm": "unrestricted"}, Unsupported, "norm"),
        ({"name": "art:fgsmm"}, UnknownName, "fgsmm"),
        ({"budgets": [0.1, 0.1]}, InvalidInput, "budgets"),
        ({"budgets": [0.1, -0.1]}, InvalidInput, "epsilon"),
        ({"threshold": 1.5}, InvalidInput, "threshold"),
        ({"step_size": "2 epsilon"}, Unsupported, "step_size"),
    ],
)
def test_misuse_is_refused_in_one_line(digits, change, error, message):
    with pytest.raises(error, match=message) as caught:
        saturate(digits, **change)
    assert "\n" not in str(caught.value)
    with pytest.raises(InvalidInput, match="misclassifies every clean image"):
        saturate(digits._replace(labels=(digits.labels + 1) % 10), budgets=[0.1, 0.2])
