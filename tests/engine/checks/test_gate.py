"""Requirements on folders written by hand: the verdict is that of SciPy's exact binomial interval, or of counting."""

import json
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import torch
from scipy.stats import binom, binomtest

import davylamp
from davylamp.engine.checks.gate_requirements import parse_requirement
from davylamp.engine.store.results import read_outcomes
from davylamp.errors import DavylampError, InvalidInput, UnknownName, Unsupported
from davylamp.report.text.gate import gate_junit, gate_markdown, gate_sarif
from davylamp.testing import assert_robust

RA = "RA >= 0.5 @ linf 0.1"


def fill(
    writer,
    robust,
    count,
    *,
    model="net",
    attacks=("foolbox:pgd",),
    violated=(),
    epsilon=0.1,
    digest="d",
    weights="",
    **settings,
):
    """A folder of a model that stays right on the images `robust` (or the first so many) of `count`."""
    labels = torch.zeros(count, dtype=torch.long)
    logits = torch.tensor([[2.0, 0.0]]).repeat(count, 1)
    places = list(range(robust)) if isinstance(robust, int) else list(robust)
    fooled = torch.ones(count, dtype=torch.bool)
    fooled[places] = False
    adv = torch.where(fooled[:, None], torch.tensor([0.0, 2.0]), logits)
    bad = torch.zeros(count, dtype=torch.bool)
    bad[list(violated)] = True
    subject = writer.clean(model, logits, labels, digest=digest, model_digest=weights or f"{model} {places}")
    for attack in attacks:
        writer.cell(subject, attack, logits, adv, labels, violated=bad, epsilon=epsilon, **settings)
    return subject


def again(writer, name):
    return type(writer)(writer.store.folder.parent / name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("RA_worst >= 0.5 @ linf 8/255", ("RA", ">=", 0.5, "linf", 8 / 255)),
        ("robust accuracy>1/2@l2 0.5", ("RA", ">", 0.5, "l2", 0.5)),
        ("FR@10 <= 0.2", ("FR@10", "<=", 0.2, None, None)),
        ("  AMD < 0.3 @ unrestricted ", ("AMD", "<", 0.3, "unrestricted", None)),
    ],
)
def test_a_requirement_is_parsed(text, expected):
    made = parse_requirement(text)
    at = made.threat_model
    assert (made.symbol, made.operator, made.number, at and at.norm, at and at.epsilon) == expected
    assert parse_requirement(str(made)) == made


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("RA = 0.5", InvalidInput, "METRIC OP NUMBER"),
        ("RA >= 0.5 linf 0.1", InvalidInput, "METRIC OP NUMBER"),
        ("RA >= 50", InvalidInput, "as a fraction: 0.5"),
        ("RA >= 0.5 @ linf 8", InvalidInput, "so use 8/255"),
        ("RA >= much", InvalidInput, "as a number"),
        ("AR >= 0.5", UnknownName, "unknown metric"),
    ],
)
def test_a_wrong_requirement_is_refused(text, error, words):
    with pytest.raises(error, match=words):
        parse_requirement(text)


@pytest.mark.parametrize("operator", [">=", "<="])
@pytest.mark.parametrize("robust", [0, 30, 49, 50, 60, 61, 100])
def test_the_interval_decides(writer, robust, operator):
    fill(writer, robust, 100)
    low, high = binomtest(robust, 100).proportion_ci(0.95, method="exact")
    met = [low >= 0.5, high >= 0.5] if operator == ">=" else [low <= 0.5, high <= 0.5]
    expected = "pass" if all(met) else "fail" if not any(met) else "too few images"
    result = davylamp.gate(writer.store.folder, f"RA {operator} 0.5 @ linf 0.1")
    (row,) = result.made
    assert row.verdict == result.document["verdict"] == expected
    assert (row.value, row.low, row.high, row.images) == pytest.approx((robust / 100, low, high, 100))
    assert result.document["code"] == {"pass": 0, "fail": 1, "too few images": 3}[expected]
    assert row.more is None or expected == "too few images"
    assert (row.more is None) == (abs(robust - 50) < 5 or expected != "too few images")


@pytest.mark.parametrize(
    ("robust", "count", "number"), [(50, 100, 0.42), (180, 200, 0.87), (26, 60, 0.35), (9, 60, 0.22)]
)
def test_so_many_more_images_decide_in_about_half_of_the_cases(writer, robust, count, number):
    """Half of the draws of so many images of the same kind, added to the present ones, are decided exactly."""
    fill(writer, robust, count)
    (row,) = davylamp.gate(writer.store.folder, f"RA >= {number}").made
    assert row.verdict == "too few images"
    total, hits = count + row.more, np.arange(row.more + 1)
    ends = [binomtest(int(robust + hit), total).proportion_ci(0.95, method="exact") for hit in hits]
    decided = np.array([low >= number or high < number for low, high in ends])
    assert 0.35 < binom.pmf(hits, row.more, robust / count)[decided].sum() < 0.65


def test_the_worst_verdict_counts_and_every_model_is_judged(writer):
    fill(writer, 90, 100, model="good")
    fill(writer, 10, 100, model="bad")
    fill(writer, 52, 100, model="unclear")
    result = davylamp.gate(writer.store.folder, [RA, "CA >= 0.9"])
    assert result.document["verdict"] == "fail"
    verdicts = {(each.requirement, each.model): each.verdict for each in result.made}
    assert verdicts == {
        (RA, "good"): "pass",
        (RA, "bad"): "fail",
        (RA, "unclear"): "too few images",
        **{("CA >= 0.9", name): "pass" for name in ("good", "bad", "unclear")},
    }
    assert davylamp.gate(writer.store.folder, RA, model=["good", "unclear"]).document["code"] == 3
    assert davylamp.gate(writer.store.folder, RA, model="good").document["code"] == 0
    with pytest.raises(UnknownName):
        davylamp.gate(writer.store.folder, RA, model="god")


def test_what_was_not_measured_is_refused(writer):
    fill(writer, 90, 100)
    fill(writer, 90, 100, model="other", epsilon=0.2)
    folder = writer.store.folder
    for text, words in {
        "RA >= 0.5 @ linf 8/255": "for net, other; there are results for linf 0.1; linf 0.2",
        RA: "no result in .* for other",
        "RA >= 0.5 @ l2 0.5": "no result in",
        "RA >= 0.5 @ linf": "no result in",
    }.items():
        with pytest.raises(InvalidInput, match=words):
            davylamp.gate(folder, text)
    with pytest.raises(Unsupported, match="not available"):
        davylamp.gate(folder, "TAS >= 0.5")
    with pytest.raises(InvalidInput, match="empty list"):
        davylamp.gate(folder, [])
    with pytest.raises(DavylampError, match="results folder"):
        davylamp.gate(folder / "nowhere", RA)


def test_invalid_results_and_failed_runs_never_pass(writer):
    """40 are fooled, 60 left: with 30 of them invalid, between 30 and 60 % are robust, however many images."""
    fill(writer, 60, 100, violated=range(30))
    (row,) = davylamp.gate(writer.store.folder, "RA >= 0.5").made
    assert (row.verdict, row.more) == ("invalid results", None)
    assert davylamp.gate(writer.store.folder, "RA >= 0.8").made[0].verdict == "fail"
    assert davylamp.gate(writer.store.folder, "RA >= 0.2").made[0].verdict == "pass"
    other = again(writer, "failed")
    subject = fill(other, 90, 100)
    other.failed(subject, "torchattacks:pgd", "it crashed")
    (row,) = davylamp.gate(other.store.folder, RA).made
    assert (row.verdict, davylamp.gate(other.store.folder, RA).document["code"]) == ("unfinished", 1)
    assert davylamp.gate(other.store.folder, "RA >= 0.99 @ linf 0.1").made[0].verdict == "fail"  # more attacks: less


def test_the_worst_case_over_attacks_counts(writer):
    labels, logits = torch.zeros(100, dtype=torch.long), torch.tensor([[2.0, 0.0]]).repeat(100, 1)
    subject = writer.clean("net", logits, labels)
    for attack, fooled in (("foolbox:pgd", slice(0, 40)), ("torchattacks:pgd", slice(40, 80))):
        adv = logits.clone()
        adv[fooled] = torch.tensor([0.0, 2.0])
        writer.cell(subject, attack, logits, adv, labels)
    (row,) = davylamp.gate(writer.store.folder, "RA >= 0.5").made
    assert (row.verdict, row.value, row.attacks) == ("fail", pytest.approx(0.2), 2)


@pytest.mark.parametrize(
    ("count", "new", "margin", "verdict", "more"),
    [
        (100, range(70), 0.05, "pass", None),  # the same images: less than 3.7 % lost, with 97.5 % confidence
        (60, range(42), 0.05, "too few images", 12),  # 72 images without a difference bound it by 5 %
        (100, range(40), 0.05, "fail", None),  # 30 lost, none gained
        (100, range(66), 0.05, "too few images", ...),  # 4 lost: the interval covers -0.05
        (100, range(95), 0.0, "pass", None),  # 25 gained, none lost
    ],
)
def test_a_baseline_is_compared_image_by_image(writer, count, new, margin, verdict, more):
    fill(writer, new, count)
    before = again(writer, "before")
    fill(before, int(0.7 * count), count, model="earlier")
    result = davylamp.gate(writer.store.folder, "RA >= 0.1", against=before.store.folder, margin=margin)
    (row,) = [each for each in result.made if "baseline" in each.requirement]
    assert row.verdict == verdict
    assert row.value == pytest.approx((len(new) - int(0.7 * count)) / count)
    assert more is ... or row.more == more


@pytest.mark.parametrize("count", [1, 20, 100])
def test_an_unchanged_model_with_equal_results_is_not_worse(writer, count):
    """The same digest and the same result on each image: the difference is 0, however few images there are."""
    fill(writer, count // 2, count, weights="same")
    before = again(writer, "before")
    fill(before, count // 2, count, weights="same")
    words = {"require": ["RA >= 0", "CA >= 0"], "margin": 0.0}
    made = davylamp.gate(writer.store.folder, against=before.store.folder, **words).made
    changes = [each for each in made if each.is_change]
    assert [(each.verdict, each.value, each.low, each.high, each.images) for each in changes] == [
        ("pass", 0.0, 0.0, 0.0, count)
    ] * 2
    assert all(each.detail for each in changes)
    other, unequal = again(writer, "other"), again(writer, "unequal")
    fill(other, count // 2, count, weights="other")  # equal results of different weights
    fill(unequal, range(count // 2, 2 * (count // 2)), count, weights="same")
    for folder in (other, *([unequal] if count > 1 else [])):
        made = davylamp.gate(writer.store.folder, "RA >= 0", against=folder.store.folder, margin=0.0).made
        assert [each.verdict for each in made if each.is_change] == ["too few images"]


def test_the_results_themselves_are_not_a_baseline(writer, run):
    fill(writer, 70, 100)
    folder = writer.store.folder
    with pytest.raises(InvalidInput, match="net itself"):
        davylamp.gate(folder, "RA >= 0.1", against=folder)
    assert run("gate", str(folder), "--require", "CA >= 0.1", "--against", f"{folder}/../{folder.name}")[0] == 2


def test_only_the_same_images_and_attacks_are_compared(writer):
    fill(writer, 70, 100)
    others = again(writer, "others")
    fill(others, 70, 100, attacks=("torchattacks:pgd",))
    with pytest.raises(InvalidInput, match="none of foolbox:pgd is in the baseline"):
        davylamp.gate(writer.store.folder, "RA >= 0.1", against=others.store.folder)
    budget = again(writer, "budget")
    fill(budget, 70, 100, parameters={"max_queries": 200})
    with pytest.raises(InvalidInput, match="foolbox:pgd with max_queries not set here and with max_queries 200 there"):
        davylamp.gate(writer.store.folder, "RA >= 0.1", against=budget.store.folder)
    images = again(writer, "images")
    labels, logits = torch.zeros(50, dtype=torch.long), torch.tensor([[2.0, 0.0]]).repeat(50, 1)
    writer_of_others = images.clean("net", logits, labels, data="else", digest="e")
    images.cell(writer_of_others, "foolbox:pgd", logits, logits, labels)
    with pytest.raises(InvalidInput, match="same images"):
        davylamp.gate(writer.store.folder, "RA >= 0.1", against=images.store.folder)
    with pytest.raises(Unsupported, match="RA or CA"):
        davylamp.gate(writer.store.folder, "MR <= 0.9", against=others.store.folder)
    two = again(writer, "two")
    fill(two, 70, 100, model="one")
    fill(two, 70, 100, model="another")
    with pytest.raises(InvalidInput, match="has no model net"):
        davylamp.gate(writer.store.folder, "RA >= 0.1", against=two.store.folder)


def test_an_invalid_result_may_count_for_either_side_of_a_comparison(writer):
    fill(writer, 70, 100, violated=range(20))
    before = again(writer, "before")
    fill(before, 70, 100)
    result = davylamp.gate(writer.store.folder, "RA >= 0.1", against=before.store.folder)
    (row,) = [each for each in result.made if "baseline" in each.requirement]
    assert (row.verdict, row.value) == ("invalid results", 0.0)
    assert row.low < -0.2 < 0.2 <= row.high + 1e-9


def test_the_documents_say_the_same(writer):
    fill(writer, 90, 100, model="good|<b>\x07")
    fill(writer, 10, 100, model="bad")
    fill(writer, 52, 100, model="unclear")
    result = davylamp.gate(writer.store.folder, RA)
    (suite,) = ET.fromstring(gate_junit(result.made))
    assert {name: suite.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
    }
    assert [[child.tag for child in case] for case in suite] == [["failure"], ["error"], []]
    assert suite[1][0].get("type") == "too few images"
    sarif = json.loads(gate_sarif(result.made, {**result.to_dict(), "folder": "a folder/results"}, "1.2"))
    (run,) = sarif["runs"]
    assert (sarif["version"], run["tool"]["driver"]["name"]) == ("2.1.0", "davylamp")
    assert [each["id"] for each in run["tool"]["driver"]["rules"]] == [RA]
    kinds = [(each["kind"], each["level"], each["ruleIndex"]) for each in run["results"]]
    assert kinds == [("fail", "error", 0), ("open", "none", 0), ("pass", "none", 0)]
    for each in run["results"]:
        assert each["message"]["text"]
        assert each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "a%20folder/results"
    text = gate_markdown(result.headline, result.made, ["a note"])
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 5
    assert {row.replace("\\|", "").count("|") for row in rows} == {8}
    assert "\x07" not in text


def test_the_helper_for_pytest(writer):
    fill(writer, 90, 100)
    assert_robust(writer.store.folder, RA, "CA >= 0.9")
    with pytest.raises(AssertionError, match="fail: 1 fail"):
        assert_robust(writer.store.folder, "RA >= 0.99")
    with pytest.raises(AssertionError, match="too few images"):
        assert_robust(writer.store.folder, "RA >= 0.89")


def test_a_failing_indicator_is_named_and_strict_fails(writer):
    count, labels = 60, torch.zeros(60, dtype=torch.long)
    logits = torch.tensor([[2.0, 0.0]]).repeat(count, 1)
    subject = writer.clean("net", logits, labels)
    writer.cell(subject, "foolbox:pgd", logits, logits, labels, epsilon=0.1)
    adv = logits.clone()
    adv[:50] = torch.tensor([0.0, 2.0])
    writer.cell(subject, "foolbox:fgsm", logits, adv, labels, epsilon=0.1)  # one step fools more than many
    result = davylamp.gate(writer.store.folder, "RA >= 0.01")
    assert result.document["code"] == 0
    assert result.notes
    strict = davylamp.gate(writer.store.folder, "RA >= 0.01", strict=True)
    assert (strict.document["verdict"], strict.made[0].requirement) == ("fail", "no failure indicator fails")


def test_a_metric_without_an_interval_is_not_decided_by_more_images(digits, tmp_path):
    """Every example lies at the radius: AMD has one value on all images, and no bootstrap interval."""
    out = tmp_path / "out"
    davylamp.evaluate(
        {"net": digits.classifier}, digits.inputs[:20], digits.labels[:20], attacks="foolbox:fgsm", epsilon=0.1, out=out
    )
    decided = davylamp.gate(out, "AMD <= 0.2").made[0]
    assert (decided.verdict, decided.more) == ("too few images", None)
    assert "interval" in decided.detail


def test_an_attack_of_the_baseline_that_was_not_run_here_prevents_a_pass(writer):
    """Without it the model could pass by running fewer attacks than before."""
    before = again(writer, "before")
    fill(before, 60, 100, attacks=("foolbox:pgd", "foolbox:fgsm"))
    fill(writer, 90, 100)
    change = davylamp.gate(writer.store.folder, "RA >= 0.1", against=before.store.folder, margin=0.1).made[0]
    assert change.verdict == "unfinished"
    assert "foolbox:fgsm" in change.detail


def test_a_loss_under_the_common_attacks_that_no_missing_attack_can_mend_fails(writer):
    """The baseline keeps 60 of 100 under its two attacks, and 80 under the common one; the model 30, or 55."""
    before = again(writer, "before")
    labels, logits = torch.zeros(100, dtype=torch.long), torch.tensor([[2.0, 0.0]]).repeat(100, 1)
    subject = before.clean("net", logits, labels)
    for attack, robust in (("foolbox:pgd", 80), ("foolbox:fgsm", 60)):
        adv = logits.clone()
        adv[robust:] = torch.tensor([0.0, 2.0])
        before.cell(subject, attack, logits, adv, labels)
    fill(writer, 30, 100)
    good = again(writer, "good")
    fill(good, 55, 100)
    verdicts = {}
    for name, folder in {"bad": writer.store.folder, "good": good.store.folder}.items():
        made = davylamp.gate(folder, "RA >= 0", against=before.store.folder, margin=0.1).made
        (verdicts[name],) = [each for each in made if each.is_change]
    assert {name: each.verdict for name, each in verdicts.items()} == {"bad": "fail", "good": "unfinished"}
    assert verdicts["bad"].value == pytest.approx(0.30 - 0.60)
    assert verdicts["bad"].high < -0.1
    assert "foolbox:fgsm" in verdicts["bad"].detail


def test_the_version_of_a_model_that_was_evaluated_last_is_judged(tmp_path):
    """A folder that a CI keeps: a bad model, its repair under the same name, and the bad one again, all reused."""
    inputs = torch.rand(40, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    labels = (inputs.flatten(1)[:, 0] < inputs.flatten(1)[:, 1]).long()
    nets = {}
    for name, sign in (("good", 1.0), ("bad", -1.0)):
        layer = torch.nn.Linear(4, 2)
        with torch.no_grad():
            layer.weight.copy_(sign * torch.tensor([[9.0, -9, 0, 0], [-9, 9, 0, 0]]))
            layer.bias.zero_()
        nets[name] = torch.nn.Sequential(torch.nn.Flatten(), layer)
    before, judged = tmp_path / "before", []
    words = {"attacks": "foolbox:fgsm", "epsilon": 0.001, "progress": False}
    for name in ("bad", "good", "bad"):
        davylamp.evaluate({"net": nets[name]}, inputs, labels, out=tmp_path / "kept", **words)
        if name == "good":
            davylamp.evaluate({"net": nets[name]}, inputs, labels, out=before, **words)
        decided = davylamp.gate(tmp_path / "kept", "CA >= 0.5")
        judged.append([(each.model, each.verdict) for each in decided.made])
    assert judged == [[("net", "fail")], [("net", "pass")], [("net", "fail")]]
    assert len(decided.notes) == 1
    subjects = {each.full_name for each in read_outcomes(tmp_path / "kept").subjects.values()}
    (older,) = [name for name in subjects if f"not {name}" in decided.notes[0]]
    chosen = davylamp.gate(tmp_path / "kept", "CA >= 0.5", model=older)
    assert [(each.model, each.verdict) for each in chosen.made] == [(older, "pass")]
    change = davylamp.gate(before, "CA >= 0.5", against=tmp_path / "kept", margin=0.1).made
    assert {each.requirement.partition(" ")[0]: each.value for each in change if "baseline" in each.requirement} == {
        "CA": 1.0
    }


def test_a_model_with_undeclared_randomness_is_not_judged(writer):
    """All 100 images stay correct, but those with an unstable result cannot tell."""
    labels, logits = torch.zeros(100, dtype=torch.long), torch.tensor([[2.0, 0.0]]).repeat(100, 1)
    bad = torch.arange(100) < 3
    kinds = np.where(bad.numpy(), "unstable", "")
    for name, words in {"steady": {}, "random": {"violated": bad, "violations": kinds}}.items():
        subject = writer.clean(name, logits, labels)
        writer.cell(subject, "foolbox:pgd", logits, logits, labels, **words)
    made = davylamp.gate(writer.store.folder, ["RA >= 0.5", "CA >= 0.9"]).made
    verdicts = {(each.model, each.requirement[:2]): each.verdict for each in made}
    assert verdicts == {
        ("random", "RA"): "invalid results",
        ("random", "CA"): "pass",
        ("steady", "RA"): "pass",
        ("steady", "CA"): "pass",
    }


@pytest.mark.parametrize(
    ("attacks", "lacking"),
    [
        (("foolbox:pgd", "foolbox:fgsm"), {"attack without gradients", "ensemble such as autoattack"}),
        (("foolbox:pgd", "torchattacks:square"), {"ensemble such as autoattack"}),
        (("torchattacks:autoattack",), set()),
    ],
)
def test_the_attacks_behind_a_worst_case_are_named(writer, attacks, lacking):
    fill(writer, 90, 100, attacks=attacks)
    (note,) = [each for each in davylamp.gate(writer.store.folder, [RA, "CA >= 0.5"]).notes if "worst case" in each]
    assert all(attack in note for attack in attacks)
    named = {"attack without gradients", "ensemble such as autoattack"}
    assert {each for each in named if each in note} == lacking


def test_few_common_images_are_noted(writer):
    before = again(writer, "before")
    fill(before, 70, 100)
    labels, logits = torch.zeros(20, dtype=torch.long), torch.tensor([[2.0, 0.0]]).repeat(20, 1)
    subject = writer.clean("net", logits, labels, digest="first")
    writer.cell(subject, "foolbox:pgd", logits, logits, labels)
    result = davylamp.gate(writer.store.folder, "RA >= 0.1", against=before.store.folder)
    (change,) = [each for each in result.made if each.is_change]
    assert change.images == 20
    assert any("20 of 100 images" in note for note in result.notes)
    assert "difference" in gate_markdown("", [change], [])
    (other,) = [each for each in result.made if not each.is_change]
    assert "difference" not in gate_markdown("", [other], [])


def test_an_evaluation_is_gated_by_the_models_that_it_evaluated(digits, tmp_path):
    """Weights replaced under one name in one folder: each evaluation is judged by its own, the folder by the last."""
    worse = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 10))
    given = {"attacks": "foolbox:fgsm", "epsilon": 1e-6, "out": tmp_path / "r"}
    bad = davylamp.evaluate({"mine": worse}, digits.inputs, digits.labels, **given)
    good = davylamp.evaluate({"mine": digits.module}, digits.inputs, digits.labels, **given)
    assert davylamp.gate(good, "CA >= 0.7").document["code"] == 0  # 16 of 16 images
    assert davylamp.gate(bad, "CA >= 0.7").document["code"] == 1
    assert davylamp.gate(tmp_path / "r", "CA >= 0.7").document["code"] == 0
    assert repr(bad).count("mine, linf") == repr(good).count("mine, linf") == 1
    assert "CA 1.000" in repr(good)
    assert "CA 1.000" not in repr(bad)
    assert davylamp.gate(good, "CA >= 0.7", against=bad, margin=0.0).document["code"] == 0
    assert davylamp.gate(bad, "CA >= 0.01", against=good).document["code"] == 1


def test_a_gate_that_cannot_decide_leaves_no_report_of_an_earlier_job(run, tmp_path):
    file = tmp_path / "gate.xml"
    file.write_text("<testsuites/>")
    code, *_ = run("gate", str(tmp_path / "nothing"), "--require", "RA >= 0.5", "--junit", str(file))
    assert code == 2
    assert not file.exists()


def test_a_model_with_undeclared_randomness_is_not_compared_with_a_baseline(writer):
    """On either side: its results are not a loss, nor is a loss from it one."""
    labels, logits = torch.zeros(100, dtype=torch.long), torch.tensor([[2.0, 0.0]]).repeat(100, 1)
    bad = torch.arange(100) < 3
    random = {"violated": bad, "violations": np.where(bad.numpy(), "unstable", "")}
    subject = writer.clean("net", logits, labels, model_digest="random")
    writer.cell(subject, "foolbox:pgd", logits, logits, labels, **random)
    steady = again(writer, "steady")
    steady.cell(steady.clean("net", logits, labels), "foolbox:pgd", logits, logits, labels)
    for one, other in ((writer, steady), (steady, writer)):
        made = davylamp.gate(one.store.folder, ["RA >= 0", "CA >= 0"], against=other.store.folder, margin=0.3).made
        changes = {each.requirement[:2]: each.verdict for each in made if each.is_change}
        assert changes == {"RA": "invalid results", "CA": "pass"}


def test_an_attack_of_the_baseline_with_other_settings_here_is_named_with_them(writer):
    before = again(writer, "before")
    for folder, steps in ((writer, 10), (before, 20)):
        labels, logits = torch.zeros(100, dtype=torch.long), torch.tensor([[2.0, 0.0]]).repeat(100, 1)
        subject = folder.clean("net", logits, labels)
        folder.cell(subject, "foolbox:fgsm", logits, logits, labels)
        folder.cell(subject, "foolbox:pgd", logits, logits, labels, parameters={"steps": steps, "step_size": 2 / steps})
    change = davylamp.gate(writer.store.folder, "RA >= 0.1", against=before.store.folder).made[0]
    assert change.verdict == "unfinished"
    for words in ("foolbox:pgd", "steps 10", "step_size 0.2", "steps 20", "step_size 0.1"):
        assert words in change.detail
    assert "fgsm" not in change.detail


@pytest.mark.parametrize("names", [("demo", "demo"), ("demo", "other")])
def test_every_data_set_of_a_model_is_judged(writer, names):
    """The images of a data set were replaced under its name, or there are two data sets: both count, for RA and CA."""
    right = torch.tensor([[2.0, 0.0]]).repeat(100, 1)
    for data, digest, wrong in zip(names, ("d", "e"), (0, 60), strict=True):
        logits = right.clone()
        logits[:wrong] = torch.tensor([0.0, 2.0])
        labels = torch.zeros(100, dtype=torch.long)
        subject = writer.clean("net", logits, labels, data=data, digest=digest)
        writer.cell(subject, "foolbox:pgd", logits, logits, labels)
    result = davylamp.gate(writer.store.folder, ["CA >= 0.8", "RA >= 0.8"])
    verdicts = [(each.requirement, each.verdict, each.value) for each in result.made]
    assert sorted(verdicts) == [
        *[("CA >= 0.8", "fail", 0.4), ("CA >= 0.8", "pass", 1.0)],
        *[("RA >= 0.8", "fail", 0.4), ("RA >= 0.8", "pass", 1.0)],
    ]
    assert len({each.threat for each in result.made}) == 4
    rows = davylamp.table(writer.store.folder, metrics=["RA"]).rows
    assert sorted(row.metrics["RA"].value for row in rows) == [0.4, 1.0]  # never their mean
    assert len({row.labels["setting"] for row in rows}) == 2
    frame = davylamp.load(writer.store.folder)
    assert frame.groupby("data")["data_digest"].nunique().to_list() == [1, 1]
    named = [note for note in read_outcomes(writer.store.folder).findings if note.name == "data-versions"]
    assert len(named) == (names[0] == names[1])
