"""`at-saturation(A)` from the command line to the record and back: by a linear model's formula, and by A itself."""

import numpy as np
import pytest
import torch
from torch import nn

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.engine import AttackChoice, Config, ResultsStore, build_table, evaluate, load, make_plan
from davylamp.engine.attack_run import AttackRun, ModelOnData, describe_attack
from davylamp.engine.checks.check_folder import check_folder
from davylamp.engine.plan.choices import format_defaults_taken
from davylamp.engine.plan.presets import PRESETS
from davylamp.engine.plan.rerun import configs_of
from davylamp.engine.searches.saturation import at_saturation
from davylamp.engine.store.results import read_outcomes
from davylamp.engine.tables.budget_curves import build_curves
from davylamp.errors import AttackFailed, InvalidInput, Unsupported
from davylamp.report.page.build import build_report
from davylamp.scoring.items import libraries_of

from ..conftest import Interrupted

NAME = "at-saturation(foolbox:pgd)"
STEPS = {"steps": 4, "step_size": "1 epsilon", "random_start": True}
NUMBERS = ["success", "distance", "forwards", "backwards", "linf", "adv_predicted"]


def at_limit(case, epsilon=None, name="art:fgsm", **options):
    return at_saturation(name, case.classifier, case.inputs, case.labels, ThreatModel("linf", epsilon), **options)


def plan_of(digits, images, *choices, **settings):
    config = Config(attacks=choices, data="digits", measures=("effect", "cost"), **settings)
    return make_plan(config, models={"cnn": digits.classifier}, data=images)


def test_on_a_linear_model_the_radius_is_the_first_one_above_the_largest_least_perturbation(linear):
    least = linear.least["linf"].sort().values.tolist()
    limit = least[-1] * 3
    radii = [limit / 2**k for k in range(8, -1, -1)]
    result = at_limit(linear, limit)
    shares = tuple(sum(value <= radius for value in least) / len(least) for radius in radii)
    assert result.saturation.budgets == tuple(radii)
    assert result.saturation.ratios == shares
    assert result.radius == result.saturation.epsilon == limit / 2
    assert result.success.all()
    single = [run_attack("art:fgsm", linear.classifier, linear.inputs, linear.labels, ThreatModel("linf", radius))
              for radius in radii]  # fmt: skip
    assert result.forwards.tolist() == sum(each.forwards for each in single).tolist()
    assert result.backwards.tolist() == sum(each.backwards for each in single).tolist()
    assert (result.adv_inputs == single[-2].adv_inputs).all()


def test_where_the_share_still_grows_larger_radii_follow_unless_a_limit_was_given(linear, monkeypatch):
    least = linear.least["linf"].sort().values.tolist()
    limited = at_limit(linear, least[2] * 1.01)
    assert (limited.saturation.epsilon, limited.radius) == (None, least[2] * 1.01)
    nothing = at_limit(linear, least[0] / 2)
    assert (nothing.saturation.epsilon, nothing.radius, nothing.saturation.ratios) == (None, least[0] / 2, (0,) * 9)
    monkeypatch.setattr(
        "davylamp.engine.searches.saturation.default_budgets", lambda *_: [least[0] / 2, least[0] / 1.5]
    )
    done = []
    wider = at_limit(linear, progress=done.append)
    assert wider.saturation.budgets[2:4] == (least[0] / 1.5 * 2, least[0] / 1.5 * 4)
    assert wider.saturation.ratios[-1] == 1
    assert wider.radius == next(
        b for b, r in zip(wider.saturation.budgets, wider.saturation.ratios, strict=True) if r == 1
    )
    assert sum(done) == len(linear.labels)


def test_radii_at_which_the_library_crashes_are_left_out_and_named(linear, monkeypatch):
    least = linear.least["linf"].max().item()

    def run(row, classifier, inputs, labels, ball, **more):
        if ball.epsilon < crashing:
            raise AttackFailed("it crashed")
        return run_attack(row, classifier, inputs, labels, ball, **more)

    monkeypatch.setattr("davylamp.engine.searches.saturation.run_attack", run)
    crashing = least / 8
    result = at_limit(linear, least * 3)
    assert result.failed == {least * 3 / 2**k: "it crashed" for k in (8, 7, 6, 5)}
    assert len(result.saturation.budgets) == 5
    assert result.radius == least * 1.5
    crashing = 1.0
    with pytest.raises(AttackFailed, match="crashed at every radius: it crashed"):
        at_limit(linear, least * 3)


def test_where_the_smallest_radius_loses_nothing_smaller_ones_follow(linear):
    largest = linear.least["linf"].max().item()
    result = at_limit(linear, largest * 2**10 * 0.75)
    assert (
        len(result.saturation.budgets) == 11
    )  # nine, all of which lose nothing, one more that does not, and one that does
    assert result.saturation.ratios[1:] == (1,) * 10
    assert result.saturation.ratios[0] < 1
    assert result.radius == result.saturation.budgets[1] == pytest.approx(largest * 1.5)


def test_a_record_is_that_of_the_attack_at_its_radius_and_has_how_it_was_found(digits, images, tmp_path):
    plan = plan_of(digits, images, AttackChoice(NAME, "linf", parameters=STEPS))
    (cell,) = plan.cells
    assert (cell.attack, cell.shards, cell.threat_model.epsilon) == (NAME, 1, None)
    assert cell.parameters["step_size"] == "1 epsilon"
    assert "epsilon" not in format_defaults_taken(plan.config, plan.cells, ())
    assert evaluate(plan, ResultsStore(tmp_path / "s")).failed == {}
    assert evaluate(plan, ResultsStore(tmp_path / "s")).kept == 1
    (outcome,) = read_outcomes(tmp_path / "s").done
    search = outcome.meta["saturation"]
    assert outcome.cell.key == cell.key
    assert outcome.cell.as_planned == cell
    assert outcome.cell.threat_model.epsilon == search["radius"]
    assert search["shares"] == sorted(search["shares"])
    assert len(search["radii"]) == 9
    assert search["attacked"] == 16
    near = [
        r for r, share in zip(search["radii"], search["shares"], strict=True) if share >= max(search["shares"]) - 0.01
    ]
    assert search["radius"] == near[0]
    choices = [AttackChoice("foolbox:pgd", "linf", radius, parameters=STEPS) for radius in search["radii"]]
    evaluate(plan_of(digits, images, *choices), ResultsStore(tmp_path / "p"))
    searched, plain = load(tmp_path / "s"), load(tmp_path / "p")
    alike = plain[plain["epsilon"] == search["radius"]].reset_index(drop=True)
    for name in ("success", "distance", "linf", "adv_predicted"):
        assert (searched[name] == alike[name]).all()
    for name in ("forwards", "backwards"):
        assert (searched[name] == plain.groupby("index")[name].sum().to_numpy()).all()
    assert searched["epsilon"].isna().all()
    assert {*searched["radius"]} == {search["radius"]}
    shares = plain.groupby("epsilon")["success"].mean()
    assert shares.to_numpy() == pytest.approx(search["shares"])
    (again,) = configs_of([outcome.cell])
    assert make_plan(again, models={"cnn": digits.classifier}, data=images).cells == plan.cells


def test_tables_and_the_report_show_it_at_its_radius(digits, images, tmp_path):
    evaluate(plan_of(digits, images, AttackChoice(NAME, "linf", parameters=STEPS)), ResultsStore(tmp_path))
    (outcome,) = read_outcomes(tmp_path).done
    radius = outcome.meta["saturation"]["radius"]
    for by in ("attacks", "models", "pairs"):
        table = build_table(tmp_path, metrics=["MR"], by=by, bootstrap=0)
        assert [row.labels["epsilon"] for row in table.rows] == [radius]
        assert any(note.startswith(f"{NAME} on cnn: linf ") for note in table.notes)
    (curve,) = build_curves(tmp_path, bootstrap=0).curves
    assert curve.labels["implementation"] == NAME
    page = build_report(tmp_path)
    assert "is within 0.01 of the highest" in page
    assert "smallest change" not in page.partition('<section id="verdict"')[2].partition("<table")[0]
    assert any(check.cell == outcome.cell.key for check in check_folder(tmp_path))
    assert libraries_of([NAME, "at-saturation(art:fgsm)"]) == ["foolbox", "art"]


def test_models_with_radii_of_their_own_share_a_row_of_attacks(digits, images, tmp_path):
    other = Classifier(nn.Sequential(Rough(), digits.module), name="rough")
    config = Config(attacks=(AttackChoice(NAME, "linf", parameters=STEPS),), data="d", measures=("effect",))
    evaluate(make_plan(config, models={"a": digits.classifier, "b": other}, data=images), ResultsStore(tmp_path))
    radii = [outcome.cell.threat_model.epsilon for outcome in read_outcomes(tmp_path).done]
    assert radii[1] <= radii[0] / 2
    (row,) = build_table(tmp_path, metrics=["MR"], bootstrap=0).rows
    assert row.labels["models"] == 2
    assert np.isnan(row.labels["epsilon"])
    pairs = build_table(tmp_path, metrics=["MR"], by="pairs", bootstrap=0).rows
    assert [each.labels["epsilon"] for each in pairs] == radii


class Rough(nn.Module):
    """Sees what differs within a block of 2 x 2 pixels eight times as strongly; the digits have no such differences."""

    def forward(self, inputs):
        smooth = nn.functional.interpolate(nn.functional.avg_pool2d(inputs, 2), scale_factor=2)
        return smooth + 8 * (inputs - smooth)


def test_a_killed_run_goes_on_to_the_same_records(digits, images, tmp_path):
    choices = AttackChoice(NAME, "linf", parameters=STEPS), AttackChoice("at-saturation(art:fgsm)", "linf")
    plan = plan_of(digits, images, *choices)
    evaluate(plan, ResultsStore(tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        evaluate(plan, ResultsStore(tmp_path / "cut"), executor=Interrupted(2))
    assert evaluate(plan, ResultsStore(tmp_path / "cut")).failed == {}
    frames = [load(tmp_path / name).drop(columns="seconds") for name in ("whole", "cut")]
    assert frames[0].to_json() == frames[1].to_json()


@pytest.mark.parametrize(
    ("choice", "settings", "error", "words"),
    [
        (AttackChoice("at-saturation(foolbox:deepfool)", "l2"), {}, Unsupported, "minimum-norm attack"),
        (AttackChoice("at-saturation(best(foolbox:pgd))"), {}, InvalidInput, "expected an attack as NAME"),
        (AttackChoice("at-saturation(davylamp:gd-uap)", "linf"), {}, Unsupported, "run it at one radius"),
        (AttackChoice("at-saturation(davylamp:tremba)", "linf"), {}, Unsupported, "run it at one radius"),
        (AttackChoice("best(davylamp:tremba)", "linf"), {}, Unsupported, "run it at one radius"),
        (AttackChoice("at-saturation(foolbox:spatial)", "unrestricted"), {}, Unsupported, "a norm with radii"),
        (AttackChoice(NAME, "linf", grid={"steps": (1, 2)}), {}, InvalidInput, "`grid` can only be used with a search"),
        (AttackChoice(NAME, "linf"), {"surrogate": ("cnn",)}, InvalidInput, "by querying the model"),
    ],
)
def test_what_has_no_radius_of_its_own_is_refused(digits, images, choice, settings, error, words):
    with pytest.raises(error, match=words):
        plan_of(digits, images, choice, **settings)


def test_a_record_that_says_nonsense_of_its_radius_is_no_record(digits):
    subject = ModelOnData("net", "aa", "digits", "bb", 4)
    cell = AttackRun(subject, NAME, ThreatModel("linf"))
    meta = {"spec": cell.spec, "about": describe_attack(cell), "saturation": {"radius": 0.25}}
    read = AttackRun.from_record(meta)
    assert (read.threat_model.epsilon, read.key, read.as_planned) == (0.25, cell.key, cell)
    for radius in ("much", -1.0, np.nan):
        with pytest.raises((TypeError, ValueError)):
            AttackRun.from_record({**meta, "saturation": {"radius": radius}})


def test_the_command_says_which_radius_and_why(run, digits_files):
    where = ("--models", "net.py:build", "--data", "npz:images.npz", "--norm", "linf", "-o", "out")
    code, _, err = run("evaluate", "--attacks", "at-saturation(foolbox:fgsm)", *where)
    assert code == 0, err
    assert "at-saturation(foolbox:fgsm) on net.py:build: linf " in err
    assert "of 16 images" in err
    code, out, _ = run("table", "out", "--metric", "MR")
    assert (code, "at-saturation(foolbox:fgsm)" in out) == (0, True)


def test_preset_canary_uses_it_where_the_paper_gives_no_radius():
    names = [choice.attack for choice in PRESETS["canary"].config.attacks if choice.attack.startswith("at-saturation(")]
    assert names == ["at-saturation(art:jsma)"]


def test_of_a_random_model_the_shares_of_draws_decide(digits):
    """As in its MR: a radius at which a majority of the draws of each image is fooled is not yet that of all draws."""

    class Noisy(nn.Module):
        def __init__(self, inside):
            super().__init__()
            self.inside = inside

        def forward(self, inputs):
            return self.inside(inputs + 0.5 * torch.randn_like(inputs))

    model = Classifier(Noisy(digits.module), num_classes=10, random=True)
    model.draws = 10
    words = {"steps": 5, "step_size": "0.5 epsilon", "random_start": False}
    result = at_saturation("foolbox:pgd", model, digits.inputs, digits.labels, ThreatModel("linf", 0.1), **words)
    shares = dict(zip(result.saturation.budgets, result.saturation.ratios, strict=True))
    mean = float(result.fooled_rate[result.attacked].mean())
    assert shares[result.radius] == pytest.approx(mean)
    assert mean != pytest.approx(float(result.success[result.attacked].double().mean()), abs=1e-6)
    assert mean >= max(shares.values()) - result.saturation.threshold
