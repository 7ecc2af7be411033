"""Verdicts from paired outcomes that are made by hand, and whole comparisons on the digits."""

import csv
import io
import itertools
import math
from copy import deepcopy
from dataclasses import replace

import pytest
import torch

import davylamp
from davylamp.adapters import (
    AttackResult,
    Classifier,
    ThreatModel,
    find_implementation,
    implementations_of,
    run_attack,
)
from davylamp.adapters.running.judge import perturbation_distances
from davylamp.adapters.running.targets import choose_targets
from davylamp.engine import ImplementationResult, choose_threat_model, compare, default_epsilon
from davylamp.engine.checks.verdicts import judge_comparison, judge_two
from davylamp.engine.comparison.compare import Comparison, contender, matched_parameters, measure, verdict_groups
from davylamp.engine.store.results import read_outcomes
from davylamp.errors import InvalidInput, UnknownName, Unsupported
from davylamp.intervals import proportion_interval
from davylamp.report.text.comparison import comparison_csv, comparison_document, comparison_json

CLEAN = torch.full((20, 1, 2, 2), 0.5)


def judge_pair(a, b):
    return judge_two(contender(a), contender(b))


def judge_pairs(rows):
    return judge_comparison([contender(row) for row in rows])


def make_row(name, success, changes, violations=None):
    """A row whose image i was changed by changes[i] in every pixel."""
    success = torch.tensor(success, dtype=torch.bool)
    count = len(success)
    adv = CLEAN[:count] + torch.tensor(changes).view(-1, 1, 1, 1)
    zeros = torch.zeros(count, dtype=torch.long)
    row = find_implementation(name)
    norm = "linf" if row.attack == "pgd" else "l2"
    result = AttackResult(
        implementation=name,
        threat_model=ThreatModel(norm, 0.4 if norm == "linf" else None),
        parameters={},
        seed=0,
        adv_inputs=adv,
        logits=torch.zeros(count, 3),
        adv_logits=torch.zeros(count, 3),
        labels=zeros,
        attacked=torch.ones(count, dtype=torch.bool),
        success=success,
        success_8bit=success,
        distances=perturbation_distances(CLEAN[:count], adv),
        forwards=zeros,
        backwards=zeros,
        seconds=torch.zeros(count),
        violations=tuple(violations or [()] * count),
    )
    return ImplementationResult(row, result)


def test_the_same_images_are_identical():
    a = make_row("art:pgd", [1, 0] * 10, [0.1] * 20)
    b = make_row("foolbox:pgd", [1, 0] * 10, [0.1 + 5e-7] * 20)
    assert judge_pair(a, b).verdict == "identical"


def test_distance_decides_for_minimum_norm_attacks_only():
    changes = [0.01 * (i + 1) for i in range(20)]
    farther = [value + 0.001 * (i + 1) for i, value in enumerate(changes)]
    pair = judge_pair(make_row("art:deepfool", [1] * 20, farther), make_row("foolbox:deepfool", [1] * 20, changes))
    assert (pair.verdict, pair.weaker) == ("weaker", "art:deepfool")
    assert pair.judgement.p_distance == pytest.approx(2 / 2**20)
    pair = judge_pair(make_row("art:pgd", [1] * 20, farther), make_row("foolbox:pgd", [1] * 20, changes))
    assert pair.verdict == "no difference found"
    assert pair.judgement.p_distance < 0.001


STRONG, WEAK = ("art:pgd", "torchattack:pgd"), ("foolbox:pgd", "torchattacks:pgd")


def test_each_pair_is_corrected_for_those_that_are_judged_with_it():
    """Seven images that only one fools: p = 2 / 2^7 = 0.0156 counts of one pair, and of the three of three rows."""
    rows = [make_row(f"{name}:pgd", [1] * 13 + [0] * 7, [0.2] * 20) for name in ("foolbox", "torchattacks")]
    strong = make_row("art:pgd", [1] * 20, [0.1] * 20)
    failed = ImplementationResult(find_implementation("cleverhans:pgd"), error="crashed")
    assert [pair.verdict for pair in judge_pairs([strong, rows[0], failed])] == ["weaker", "broken", "broken"]
    assert [pair.verdict for pair in judge_pairs([strong, *rows])] == ["weaker", "weaker", "identical"]
    more = judge_pairs([strong, *rows, make_row("torchattack:pgd", [1] * 20, [0.3] * 20)])
    assert {pair.verdict for pair in more} == {"identical", "no difference found"}
    assert {pair.judgement.level for pair in more} == {0.05 / 6}
    alone = {(pair.a, pair.b): pair.judgement.p_alone for pair in more if pair.judgement.p_alone > 0}
    assert alone == {pair: pytest.approx(2 / 2**7) for pair in itertools.product(STRONG[:1], WEAK)} | {
        pair: pytest.approx(2 / 2**7) for pair in itertools.product(WEAK, STRONG[1:])
    }
    assert all(math.isnan(pair.judgement.p_alone) for pair in judge_pairs([strong, *rows]))
    rules = strong.result.threat_model
    made = [replace(row, metrics=measure(row.result, CLEAN)) for row in (strong, *rows)]
    for pairs, said in ((more, 1), (judge_pairs([strong, *rows]), 0)):
        comparison = Comparison("pgd", rules, {}, 0, tuple(made), pairs)
        assert sum("implementations are compared: art:pgd and" in note for note in comparison.cautions) == said


def test_a_difference_in_means_alone_decides_nothing():
    # one huge outlier: means differ tenfold, the paired ranks do not
    first = [0.01] * 20
    second = [0.0101, 0.0099] * 9 + [0.0101, 0.4]
    pair = judge_pair(make_row("art:deepfool", [1] * 20, first), make_row("foolbox:deepfool", [1] * 20, second))
    assert pair.verdict == "no difference found"


def test_violations_above_a_tenth_or_an_error_are_broken():
    good = make_row("art:deepfool", [1] * 20, [0.1] * 20)
    bad = make_row("foolbox:deepfool", [1] * 17 + [0] * 3, [0.1] * 20, [()] * 17 + [("nan", "black")] * 3)
    pair = judge_pair(good, bad)
    assert (pair.verdict, pair.weaker) == ("broken", "foolbox:deepfool")
    numbers = measure(bad.result, CLEAN)
    assert (numbers["violations"], numbers["violation_kinds"]) == (3, {"black": 3, "nan": 3})
    fooling = make_row("foolbox:deepfool", [1] * 20, [0.1] * 20, [("out-of-bounds",)] * 20)
    assert judge_pair(good, fooling).verdict == "broken"  # though all that came back fools the model
    assert measure(fooling.result, CLEAN)["violations"] == 20
    failed = judge_pair(good, ImplementationResult(find_implementation("foolbox:deepfool"), error="crashed"))
    assert (failed.verdict, failed.weaker) == ("broken", "foolbox:deepfool")
    assert math.isnan(failed.judgement.p_success)
    excused = judge_pair(
        good, ImplementationResult(find_implementation("foolbox:deepfool"), error="no gradients", excused=True)
    )
    assert (excused.verdict, excused.weaker) == ("undecided", "")
    assert excused.judgement.reason == "foolbox:deepfool: no gradients"


def test_successes_below_one_grey_level_are_counted():
    row = make_row("art:pgd", [1] * 6 + [0] * 2, [0.0005] * 4 + [0.1] * 2 + [0.0005] * 2)
    assert measure(row.result, CLEAN[:8])["below_grey_level"] == 4


class Rounded(torch.nn.Module):
    """Its gradient is zero everywhere."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, inputs):
        return self.module((inputs * 4).round() / 4)


def test_no_library_is_broken_by_a_model_without_gradients(digits):
    classifier, case = Classifier(Rounded(digits.module)), digits.first(8)
    comparison = compare(
        "pgd", classifier, case.inputs, case.labels, ThreatModel("linf", 0.05), parameters={"steps": 3}
    )
    assert {pair.verdict for pair in comparison.pairs} == {"undecided"}
    assert all("no-gradient" in pair.judgement.reason for pair in comparison.pairs)
    assert all(row.metrics["violation_kinds"]["no-gradient"] == row.metrics["images"] for row in comparison.rows)


def test_pgd_is_identical_in_most_libraries_and_a_step_short_in_two(digits):
    case = digits
    seen = []
    comparison = compare(
        "pgd",
        case.classifier,
        case.inputs,
        case.labels,
        ThreatModel("linf", 0.1),
        parameters={"steps": 4},
        progress=lambda name, images: seen.append((name, images)),
    )
    assert comparison.parameters == {"steps": 4, "step_size": pytest.approx(0.0625), "random_start": False}
    whole = ("art", "foolbox", "torchattacks", "torchattack", "cleverhans")
    short = ("adv-lib", "secml-torch")
    assert {row.implementation.library for row in comparison.rows} == {*whole, *short}
    verdicts = {(pair.a, pair.b): pair.verdict for pair in comparison.pairs}
    identical = {pair for pair, verdict in verdicts.items() if verdict == "identical"}
    assert identical == set(itertools.combinations([f"{library}:pgd" for library in whole], 2))
    assert len(verdicts) == math.comb(len(whole + short), 2)
    rates = {row.implementation.library: row.metrics["MR"] for row in comparison.rows}
    assert len({rates[library] for library in whole}) == 1
    assert all(rates[library] <= rates["art"] for library in short)
    assert {name for name, _ in seen} == {f"{library}:pgd" for library in whole + short}


def test_the_numbers_of_a_row_are_those_of_its_result(digits):
    comparison = compare("fgsm", digits.classifier, digits.inputs, digits.labels, ThreatModel("linf", 0.2))
    row = comparison.rows[0]
    delta = (row.result.adv_inputs - digits.inputs)[row.result.success]
    fooled = (digits.module(row.result.adv_inputs).argmax(1) != digits.labels).double()
    assert row.metrics["MR"] == pytest.approx(fooled.mean().item())
    assert row.metrics["AMD"] == pytest.approx(delta.abs().flatten(1).amax(1).mean().item(), rel=1e-5)
    assert row.metrics["AED"] == pytest.approx(delta.square().flatten(1).mean(1).sqrt().mean().item(), rel=1e-5)
    assert row.metrics["l2_median"] == pytest.approx(delta.flatten(1).norm(dim=1).quantile(0.5).item(), rel=1e-5)
    assert row.metrics["backwards_median"] == 1


def test_a_library_that_is_not_installed_is_in_no_verdict(digits):
    case = digits.first(8)
    libraries = ["art", "foolbox", "torchattacks"]
    whole = davylamp.compare(
        "pgd", case.classifier, case.inputs, case.labels, epsilon=0.1, libraries=libraries, steps=2
    )
    assert len(whole.pairs_that_ran) == len(whole.pairs) == 3
    first, *others = whole.rows
    absent = replace(whole, rows=(replace(first, metrics={}, error="not installed", excused=True), *others))
    assert [(pair.a, pair.b) for pair in absent.pairs_that_ran] == [tuple(row.implementation.name for row in others)]
    assert first.implementation.library not in " ".join(verdict_groups(absent))


def test_a_library_without_a_parameter_says_so(digits):
    case = digits.first(4)
    comparison = compare(
        "bim",
        case.classifier,
        case.inputs,
        case.labels,
        ThreatModel("linf", 0.1),
        parameters={"steps": 2, "random_start": True},
    )
    left = {row.implementation.name: row.left_out for row in comparison.rows}
    assert left == {
        **{f"{library}:bim": ("random_start",) for library in ("art", "torchattacks", "torchattack", "cleverhans")},
        "foolbox:bim": (),
    }


def test_what_no_library_has_is_refused(digits):
    case = digits.first(2)
    for threat_model, parameters, named in (
        (ThreatModel("linf", 0.1), {"confidence": 1.0}, "pgd has a parameter confidence"),
        (ThreatModel("l0", 3), {}, "pgd supports norm l0"),
    ):
        with pytest.raises(Unsupported, match=named):
            compare("pgd", case.classifier, case.inputs, case.labels, threat_model, parameters=parameters)


def test_the_threat_model_is_completed_as_papers_do():
    pgd, deepfool = implementations_of("pgd"), implementations_of("deepfool")
    assert choose_threat_model("pgd", pgd, 3072) == ThreatModel("linf", 4 / 255)
    assert choose_threat_model("deepfool", deepfool, 3072) == ThreatModel("l2", None)
    assert default_epsilon("l2", 3 * 224 * 224) == pytest.approx(3.04, abs=0.01)
    assert default_epsilon("l2", 3072) == pytest.approx(0.43, abs=0.01)
    # One row of an attack takes the norm that the attack takes: DeepFool is l2 in most libraries, linf too in one.
    assert choose_threat_model("deepfool", [find_implementation("foolbox:deepfool")], 3072) == ThreatModel("l2", None)
    with pytest.raises(UnknownName, match="did you mean"):
        choose_threat_model("pgd", pgd, 3072, norm="inf")
    with pytest.raises(Unsupported, match="supported: linf, l2, l1"):
        choose_threat_model("pgd", pgd, 3072, norm="l0")


def test_matched_steps_follow_the_radius_unless_given():
    threat_model = ThreatModel("linf", 0.1)
    assert matched_parameters("pgd", threat_model, {})["step_size"] == pytest.approx(2.5 * 0.1 / 40)
    assert matched_parameters("apgd-ce", threat_model, {})["step_size"] == pytest.approx(0.2)
    assert matched_parameters("pgd", threat_model, {"step_size": 0.01})["step_size"] == 0.01


def test_targets_by_rule_never_equal_the_label():
    logits = torch.tensor([[3.0, 2.0, 1.0], [1.0, 3.0, 2.0], [0.0, 1.0, 2.0]])
    labels = torch.tensor([0, 1, 0])
    assert choose_targets(logits, labels, "second-likely", 0).tolist() == [1, 2, 2]
    assert choose_targets(logits, labels, "least-likely", 0).tolist() == [2, 0, 1]
    assert choose_targets(logits, labels, "0", 0).tolist() == [1, 0, 1]
    assert (choose_targets(logits, labels, "random", 0) != labels).all()
    with pytest.raises(InvalidInput, match="expected a target"):
        choose_targets(logits, labels, "3", 0)


def test_two_tests_on_a_minimum_norm_attack_are_corrected_for():
    strong = make_row("art:deepfool", [1] * 20, [0.1] * 20)
    weak = make_row("foolbox:deepfool", [1] * 14 + [0] * 6, [0.1] * 14 + [0.2] * 6)
    pair = judge_pair(strong, weak)
    assert pair.judgement.p_success == pytest.approx(2 / 2**6)  # 0.03: significant alone, not as one of two tests
    assert pair.verdict == "no difference found"
    weaker = make_row("foolbox:deepfool", [1] * 13 + [0] * 7, [0.1] * 13 + [0.2] * 7)
    assert judge_pair(strong, weaker).weaker == "foolbox:deepfool"


@pytest.mark.parametrize(
    ("attack", "norm", "epsilon", "expected"),
    [
        ("fgsm", None, 0.1, "linf"),  # the only norm of a fixed-budget attack
        ("pgd", None, 8 / 255, "linf"),
        ("pgd", None, 2.0, None),  # above one: in no norm that could be guessed
        ("deepfool", None, 8 / 255, None),  # it looks for the smallest change
        ("ddn", None, 8 / 255, None),
        ("pgd", "l2", 0.1, "l2"),
        ("deepfool", "linf", 0.1, "linf"),
    ],
)
def test_a_radius_has_a_norm_that_is_named_or_beyond_doubt(attack, norm, epsilon, expected):
    rows = implementations_of(attack)
    if expected is None:
        with pytest.raises(InvalidInput, match=f"epsilon .* for {attack} needs a norm"):
            choose_threat_model(attack, rows, 3072, norm=norm, epsilon=epsilon)
    else:
        assert choose_threat_model(attack, rows, 3072, norm=norm, epsilon=epsilon) == ThreatModel(expected, epsilon)


def test_success_at_a_target_is_not_called_misclassification(digits):
    """One PGD aims at a class; it counts where that class is predicted, which fewer images are than are wrong."""
    case, rules = digits.first(12), ThreatModel("linf", 0.15, targeted=True)
    rows = implementations_of("pgd")
    chosen = [row for row in rows if row.name in ("foolbox:pgd", "torchattacks:pgd")]
    arguments = "pgd", case.classifier, case.inputs, case.labels, rules
    comparison = compare(*arguments, rows=chosen, target="least-likely", parameters={"steps": 5})
    for row in comparison.rows:
        reached = row.result.adv_logits.argmax(1) == row.result.targets
        assert row.metrics["TAS"] == pytest.approx(float(reached[row.result.attacked].double().mean()))
        assert "MR" not in row.metrics
    frame = comparison.to_frame()
    assert {"TAS", "TAS_low", "TAS_high"} <= set(frame)
    assert "foolbox:pgd: TAS " in repr(comparison)
    assert "MR" not in comparison_json(comparison)
    columns = comparison_csv(comparison).splitlines()[0].split(",")
    assert columns[2:6] == ["images", "TAS", "TAS_interval", "TAS_8bit"]


def test_the_interval_of_a_rate_reaches_to_what_violations_may_hide():
    """10 images, 2 fooled, 4 that prove nothing: by nobody's fault or the model's, not by the library's."""
    for kind, most in (("no-start", 6), ("nan-logits", 6), ("nan", 2)):
        kinds = [(kind,)] * 4 + [()] * 6
        row = make_row("foolbox:pgd", [False] * 8 + [True] * 2, [0.1] * 10, violations=kinds)
        numbers = measure(row.result, CLEAN[:10])
        low, high = proportion_interval(2, 10)[0], proportion_interval(most, 10)[1]
        assert (numbers["MR"], *numbers["MR_interval"]) == pytest.approx((0.2, low, high))


def test_an_interrupted_comparison_has_the_implementations_that_finished(digits):
    def stop(name, _):
        if name == "foolbox:fgsm":
            raise KeyboardInterrupt

    rows = [find_implementation(f"{library}:fgsm") for library in ("art", "foolbox", "torchattacks")]
    given = (digits.inputs[:2], digits.labels[:2], ThreatModel("linf", 0.1))
    with pytest.raises(KeyboardInterrupt) as interrupt:
        compare("fgsm", Classifier(digits.module), *given, rows=rows, progress=stop)
    (finished,) = interrupt.value.args
    assert [row.implementation.name for row in finished.rows] == ["art:fgsm"]
    assert [row.result.success.tolist() for row in finished.rows] == [
        run_attack("art:fgsm", Classifier(digits.module), *given).success.tolist()
    ]
    with pytest.raises(KeyboardInterrupt) as interrupt:
        compare("fgsm", Classifier(digits.module), *given, rows=rows[1:], progress=stop)
    assert not interrupt.value.args


def test_the_notes_of_a_comparison_are_in_its_document(digits):
    comparison = davylamp.compare(
        "pgd",
        digits.module,
        digits.inputs,
        digits.labels,
        epsilon=0.1,
        libraries=["torchattacks"],
        steps=1,
        step_size=0.02,
    )
    assert any("0.2 of the radius" in note for note in comparison_document(comparison)["notes"])


def test_a_default_that_was_overridden_is_not_among_those_that_differ(digits):
    case = digits.module, digits.inputs[:2], digits.labels[:2]
    own = davylamp.compare("pgd", *case, epsilon=0.1, libraries=["foolbox", "torchattacks"], defaults=True)
    frame = own.differing_defaults()
    assert dict(frame["steps"]) == {"foolbox:pgd": 40, "torchattacks:pgd": 10}  # as both libraries document
    assert comparison_document(own)["differing_defaults"]["torchattacks:pgd"]["steps"] == 10
    given = davylamp.compare("pgd", *case, epsilon=0.1, libraries=["foolbox", "torchattacks"], defaults=True, steps=3)
    assert "steps" not in given.differing_defaults()
    assert [row.metrics["backwards_max"] for row in given.rows] == [3, 3]
    rows = list(csv.DictReader(io.StringIO(comparison_csv(given))))
    assert [(row["norm"], row["epsilon"], row["data"]) for row in rows] == [("linf", "0.1", "given")] * 2


def test_a_comparison_has_the_identities_that_an_evaluation_stores(digits, tmp_path):
    changed = deepcopy(digits.module)
    with torch.no_grad():
        changed[5].weight[0, 0] += 1e-3
    documents = []
    for module in (digits.module, changed):
        case = module, digits.inputs[:3], digits.labels[:3]
        given = {"norm": "linf", "epsilon": 0.1}
        made = davylamp.compare("fgsm", *case, libraries=["foolbox"], **given)
        davylamp.evaluate(*case, attacks="foolbox:fgsm", out=tmp_path, progress=False, **given)
        documents.append(comparison_document(made))
    subjects = {(each.model_digest, each.data_digest) for each in read_outcomes(tmp_path).subjects.values()}
    assert {(each["model_digest"], each["data_digest"]) for each in documents} == subjects
    assert len(subjects) == 2
