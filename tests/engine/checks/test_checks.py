"""Each indicator from records made by hand: the numbers that fire it, and those that do not."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from davylamp.adapters import ThreatModel
from davylamp.adapters.running.judge import RULES
from davylamp.engine import ResultsStore
from davylamp.engine.attack_run import AttackRun, ModelOnData
from davylamp.engine.checks.check_folder import INDICATORS, check_folder, describe_folder
from davylamp.engine.checks.indicators import find, judged
from davylamp.engine.checks.verdicts import comparisons_of, judge_comparison
from davylamp.engine.store.results import read_outcomes

PAGE = Path(__file__).parents[3] / "docs" / "check.md"
COUNT = 20
NAMES = [f"image_{i}" for i in range(COUNT)]
LOGITS = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(COUNT * 2, np.float32)), 2)


def mask(*places):
    return np.isin(np.arange(COUNT), places)


class Folder:
    """A results folder whose records say what a test wants."""

    def __init__(self, path):
        self.store = ResultsStore(path)

    def model(self, name="net", *, reason="", **meta):
        subject = ModelOnData(name, f"digest of {name}", "demo", "d", COUNT)
        facts = {
            "key": subject.key,
            "subject": subject.spec,
            "status": "failed" if reason else "done",
            "reason": reason,
        }
        table = pa.table({} if reason else {"index": range(COUNT), "image": NAMES, **self.clean()})
        self.store.write("clean", subject.key, table, {**facts, "unmeasured": {}, **meta})
        return subject

    @staticmethod
    def clean():
        return {
            "label": [0] * COUNT,
            "predicted": [0] * COUNT,
            "CA": [1.0] * COUNT,
            "CC": [0.9] * COUNT,
            "logits": LOGITS,
        }

    def cell(self, subject, attack, fooled, epsilon=0.1, **more):
        """`fooled` are the places of the successes, at `sizes` (by default on the boundary)."""
        given = {name: more.pop(name) for name in ("seed", "parameters", "pixels") if name in more}
        cell = AttackRun(subject, attack, ThreatModel(more.pop("norm", "linf"), epsilon), rules=RULES, **given)
        success = mask(*fooled)
        sizes = np.asarray(more.pop("sizes", np.full(COUNT, epsilon or 0.1)), float)
        columns = {
            "attacked": np.ones(COUNT, bool),
            "success": success,
            "success_8bit": success,
            "violated": np.zeros(COUNT, bool),
            "violations": [""] * COUNT,
            **dict.fromkeys(("forwards", "backwards", "predicted"), np.zeros(COUNT, int)),
            "robust": ~success,
            "seconds": np.zeros(COUNT),
            "adv_logits": LOGITS,
            "adv_predicted": success.astype(int),
            "distance": np.where(success, sizes, np.inf),
            **dict.fromkeys(("l0", "l1", "l2", "linf"), sizes),
            **more,
        }
        meta = {"key": cell.key, "spec": cell.spec, "subject": subject.spec, "status": "done", "reason": ""}
        table = pa.table({"index": range(COUNT), "image": NAMES, "label": [0] * COUNT, **columns})
        self.store.write("cells", cell.key, table, {**meta, "unmeasured": {}})
        return cell

    def transfer(self, cell, subject, predicted):
        meta = {"key": cell.key, "spec": cell.spec, "subject": subject.spec, "status": "done", "reason": ""}
        table = pa.table({"index": range(COUNT), "adv_predicted": np.asarray(predicted, int)})
        self.store.write("transfer", f"{cell.key}-{subject.key}", table, meta)

    def probes(self, cell, **answers):
        images = list(range(8))
        ran = {name: {"reason": "not asked"} for name in ("more-steps", "unbounded", "random-noise", "active-test")}
        shared = {"images": images, "epsilon": cell.threat_model.epsilon, "base": {"fooled": [0], "distances": [0.1]}}
        meta = {"key": cell.key, "status": "done", "reason": "", "asked": 8, "probes": {**shared, **ran, **answers}}
        self.store.write("checks", cell.key, pa.table({}), meta)

    def one(self, name, cell=None):
        """The check of an indicator, of a cell or of the model."""
        key = "" if cell is None else cell.key
        (matching,) = [check for check in check_folder(self.store.folder) if (check.name, check.cell) == (name, key)]
        return matching


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def test_a_sound_folder_raises_nothing(folder):
    net = folder.model()
    folder.cell(net, "foolbox:pgd", range(18), seed=0)
    folder.cell(net, "foolbox:pgd", range(18), seed=1)
    folder.cell(net, "foolbox:pgd", range(6), epsilon=0.05)
    folder.cell(net, "torchattacks:pgd", range(18))
    folder.cell(net, "torchattacks:fgsm", range(9))
    folder.cell(net, "torchattacks:square", range(9))
    checks = check_folder(folder.store.folder)
    assert {check.state for check in checks} <= {"pass", "unknown"}
    assert {check.name for check in checks} == set(INDICATORS) - {"transport"}  # of remote models
    passed = {check.name for check in checks if check.state == "pass"}
    from_records = {
        "older-rules",
        "bounds",
        "returns",
        "evidence",
        "zero-epsilon",
        "eight-bit",
        "single-step",
        "black-box",
        "epsilon-growth",
    }
    assert passed == from_records | {"seeds", "libraries"}
    assert all((check.advice == "") == (check.state == "pass") for check in checks if check.state != "unknown")
    assert checks == check_folder(folder.store.folder)


def test_a_success_outside_of_the_ball_is_seen_without_the_judge(folder):
    sizes = np.where(mask(7), 0.1001, 0.1)
    for name in ("net", "other"):
        cell = folder.cell(folder.model(name), "foolbox:pgd", range(10), sizes=sizes)
    assert folder.one("bounds", cell).images == ("image_7",)
    checks = check_folder(folder.store.folder, models=["other"])
    assert {check.subject.rpartition(" ")[2] for check in checks} == {"other"}


@pytest.mark.parametrize(("broken", "state"), [((), "pass"), ((3,), "warn"), ((3, 4), "warn"), ((3, 4, 5), "fail")])
@pytest.mark.parametrize(
    ("name", "kind"), [("bounds", "out-of-ball"), ("bounds", "nan"), ("returns", "black"), ("returns", "unchanged")]
)
def test_broken_returns_warn_and_more_than_a_tenth_fail(folder, name, kind, broken, state):
    violations = [kind if i in broken else "" for i in range(COUNT)]
    cell = folder.cell(folder.model(), "foolbox:pgd", range(5, 18), violations=violations)
    check = folder.one(name, cell)
    assert check.state == state
    assert check.images == tuple(NAMES[i] for i in broken)


def test_clean_returns_of_an_attack_that_may_give_up(folder):
    cell = folder.cell(folder.model(), "foolbox:ddn", (), norm="l2", epsilon=None, sizes=np.zeros(COUNT))
    assert folder.one("returns", cell).state == "warn"


def test_predictions_must_not_move_without_a_change(folder):
    cell = folder.cell(folder.model(), "foolbox:pgd", range(10), predicted=mask(4).astype(int))
    assert folder.one("zero-epsilon", cell).images == ("image_4",)
    unmoved = folder.cell(folder.model(), "art:pgd", range(2, 10), sizes=np.where(mask(1), 0, 0.1))
    assert folder.one("zero-epsilon", unmoved).state == "pass"
    still = {"sizes": np.where(mask(1), 0, 0.1), "adv_predicted": mask(1).astype(int)}
    moved = folder.cell(folder.model(), "torchattacks:pgd", range(10), **still)
    assert folder.one("zero-epsilon", moved).state == "fail"
    # of a random model the examples are judged by other draws than the clean images
    drawn = folder.cell(folder.model(), "adv-lib:pgd", range(10), **still, draws_fooled=np.ones(COUNT))
    assert folder.one("zero-epsilon", drawn).state == "pass"


@pytest.mark.parametrize(("lost", "state"), [(1, "pass"), (2, "warn"), (5, "warn"), (6, "fail")])
def test_success_lost_on_8_bits(folder, lost, state):
    cell = folder.cell(folder.model(), "foolbox:pgd", range(10), success_8bit=mask(*range(lost, 10)))
    check = folder.one("eight-bit", cell)
    assert (check.state, len(check.images)) == (state, lost)


@pytest.mark.parametrize(("more", "state"), [(0, "pass"), (1, "warn"), (5, "warn"), (6, "fail")])
@pytest.mark.parametrize(
    ("name", "rival"), [("single-step", "torchattacks:fgsm"), ("black-box", "torchattacks:square")]
)
def test_a_weaker_attack_that_wins(folder, name, rival, more, state):
    """Six images to none is where the exact two-sided test passes 5 %: 2 / 2^6."""
    net = folder.model()
    cell = folder.cell(net, "foolbox:pgd", range(8))
    folder.cell(net, rival, range(8 + more))
    check = folder.one(name, cell)
    assert check.state == state
    assert check.images == tuple(NAMES[8 : 8 + more])
    assert ("p = 0.031" in check.detail) == (more == 6)


@pytest.mark.parametrize(("mine", "state"), [(12, "pass"), (10, "pass"), (9, "warn"), (2, "fail")])
def test_an_attack_is_beaten_if_it_loses_more_images_than_it_wins(folder, mine, state):
    net = folder.model()
    cell = folder.cell(net, "foolbox:pgd", range(mine))
    folder.cell(net, "torchattacks:fgsm", range(mine, COUNT))
    check = folder.one("single-step", cell)
    assert check.state == state
    assert ("p = " in check.detail) == (state != "pass")  # of the defeat
    assert len(check.images) == (COUNT - mine if state != "pass" else 0)


def test_other_models_norms_and_aims_are_no_rivals(folder):
    net, other = folder.model(), folder.model("other")
    cell = folder.cell(net, "foolbox:pgd", range(4))
    folder.cell(other, "torchattacks:fgsm", range(20))
    folder.cell(net, "foolbox:fgm", range(20), norm="l2")
    folder.cell(net, "art:fgsm", range(20), pixels=True)
    assert folder.one("single-step", cell).state == "unknown"


def test_a_minimum_norm_black_box_counts_within_the_radius(folder):
    net = folder.model()
    cell = folder.cell(net, "foolbox:pgd", range(8), norm="l2")
    folder.cell(net, "foolbox:boundary", range(20), norm="l2", epsilon=None, sizes=[0.09] * 15 + [0.2] * 5)
    assert folder.one("black-box", cell).images == tuple(NAMES[8:15])


def test_without_a_radius_the_nearer_one_wins(folder):
    net = folder.model()
    cell = folder.cell(net, "foolbox:ddn", range(20), norm="l2", epsilon=None, sizes=[1.0] * 20)
    folder.cell(net, "foolbox:boundary", range(20), norm="l2", epsilon=None, sizes=[0.94] * 7 + [0.96] * 13)
    check = folder.one("black-box", cell)
    assert (check.state, check.images) == ("fail", tuple(NAMES[:7]))


def test_a_transfer_that_wins(folder):
    net, other = folder.model(), folder.model("other")
    cell = folder.cell(net, "foolbox:pgd", range(4))
    made = folder.cell(other, "foolbox:pgd", range(20), sizes=np.where(mask(19), 0.2, 0.1))
    folder.transfer(made, net, mask(*range(12), 19))
    check = folder.one("black-box", cell)
    assert (check.state, check.images) == ("fail", tuple(NAMES[4:12]))  # the last one lies outside of the radius
    assert "foolbox:pgd from other" in check.detail
    assert folder.one("black-box", made).state == "unknown"


@pytest.mark.parametrize(
    ("fooled", "state"),
    [((4, 9, 18), "pass"), ((20, 20, 20), "pass"), ((9, 9, 9), "warn"), ((9, 7, 12), "warn"), ((12, 6, 18), "fail")],
)
def test_success_over_epsilon(folder, fooled, state):
    net = folder.model()
    for count, epsilon in zip(fooled, (0.02, 0.05, 0.1), strict=True):
        cell = folder.cell(net, "foolbox:pgd", range(count), epsilon, parameters={"step_size": epsilon / 4})
    assert folder.one("epsilon-growth", cell).state == state


@pytest.mark.parametrize(("apart", "state"), [(1, "pass"), (2, "warn"), (4, "warn"), (5, "fail")])
def test_seed_spread(folder, apart, state):
    net = folder.model()
    for seed in (0, 1, 2):
        folder.cell(net, "torchattacks:square", range(5 + (apart if seed == 2 else 0)), seed=seed)
    (seeds,) = [check for check in check_folder(folder.store.folder) if check.name == "seeds"]
    assert (seeds.state, len(seeds.images)) == (state, apart)


def test_seeds_that_move_an_attack_without_random_numbers(folder):
    net = folder.model()
    for seed in (0, 1):
        folder.cell(net, "foolbox:deepfool", range(10 + seed), norm="l2", epsilon=None, seed=seed)
    (seeds,) = [check for check in check_folder(folder.store.folder) if check.name == "seeds"]
    assert (seeds.state, seeds.images) == ("fail", ("image_10",))


@pytest.mark.parametrize(("weak", "state"), [(18, "pass"), (16, "pass"), (15, "warn"), (12, "warn"), (11, "fail")])
def test_libraries_that_disagree(folder, weak, state):
    """Over three pairs: seven images to none are significant (2 / 2^7 < 5 % / 3), six are not."""
    net = folder.model()
    folder.cell(net, "art:pgd", range(18))
    folder.cell(net, "torchattacks:pgd", range(18))
    cell = folder.cell(net, "foolbox:pgd", range(weak))
    (libraries,) = [check for check in check_folder(folder.store.folder) if check.name == "libraries"]
    assert libraries.state == state
    assert libraries.cell == cell.key or state == "pass"
    assert libraries.images == (() if state == "pass" else tuple(NAMES[weak:18]))


def test_verdicts_standings_and_what_a_folder_lacks_are_findings_with_numbers(folder):
    """Terminal, page and JSON print the same: each has a code and its numbers."""
    net = folder.model()
    folder.cell(net, "art:pgd", range(18))
    folder.cell(net, "foolbox:pgd", range(6))
    said = describe_folder(read_outcomes(folder.store.folder, ["OTR"]))
    (verdict,) = said["verdicts"]
    assert (verdict["name"], verdict["state"]) == ("weaker", "warn")
    assert verdict["subject"] == "art:pgd and foolbox:pgd (linf 0.1) on net"
    assert (verdict["numbers"]["only_a"], verdict["numbers"]["only_b"]) == (12, 0)
    assert verdict["images"] == tuple(NAMES[6:18])
    (few,) = [each for each in said["folder"] if each["name"] == "few-images"]
    assert (few["state"], few["numbers"]["fewest"]) == ("warn", COUNT)
    (attacks,), (models,) = said["standings"]["attacks"], said["standings"]["models"]
    assert [(each["name"], each["value"], each["apart"]) for each in attacks["places"]] == [
        ("art:pgd", 0.9, False),
        ("foolbox:pgd", 0.3, True),
    ]
    assert (models["first"], models["places"][0]["name"], models["places"][0]["value"]) == (1, "net", 0.1)


def test_libraries_on_few_images_are_unknown_and_violations_left_out(folder):
    net = folder.model()
    for place, attack in enumerate(("art:pgd", "foolbox:pgd")):
        folder.cell(net, attack, range(4), attacked=mask(*range(4)), projection=np.full(COUNT, 0.1 * place))
    (libraries,) = [check for check in check_folder(folder.store.folder) if check.name == "libraries"]
    assert (libraries.state, libraries.advice) == ("unknown", "run 2 more images (--limit)")
    other = folder.model("other")
    broken = np.where(mask(*range(12)), "no-start", "")
    folder.cell(other, "art:pgd", range(12))
    folder.cell(other, "foolbox:pgd", (), violations=broken, violated=mask(*range(12)))
    libraries = [check for check in check_folder(folder.store.folder) if check.name == "libraries"]
    assert "0 of 8 images" in libraries[1].detail
    assert libraries[1].state == "pass"


def test_what_was_not_run_is_unknown_and_says_what_to_run(folder):
    net = folder.model()
    cell = folder.cell(net, "foolbox:pgd", range(18))
    for name in ("single-step", "black-box", "epsilon-growth", "seeds", "libraries", "more-steps", "active-test"):
        check = folder.one(name, cell)
        assert check.state == "unknown", name
        assert check.advice, name


def test_probabilities_are_read_from_the_refusal(folder):
    net = folder.model(reason="InvalidInput: expected logits, got probabilities (rows >= 0 that sum to 1)")
    cell = AttackRun(net, "foolbox:pgd", ThreatModel("linf", 0.1))
    meta = {"key": cell.key, "spec": cell.spec, "status": "failed", "reason": "InvalidInput: ...", "unmeasured": {}}
    folder.store.write("cells", cell.key, pa.table({}), meta)
    assert folder.one("logits").state == "fail"
    assert {check.state for check in check_folder(folder.store.folder) if check.name != "logits"} == {"unknown"}


@pytest.mark.parametrize(
    ("attack", "name", "answers", "state"),
    [
        ("foolbox:pgd", "more-steps", {"times": 4, "fooled": [0]}, "pass"),
        ("foolbox:pgd", "more-steps", {"times": 4, "fooled": [0, 1]}, "warn"),
        ("foolbox:pgd", "more-steps", {"times": 4, "fooled": [0, 1, 2, 3, 4, 5]}, "fail"),
        ("foolbox:pgd", "unbounded", {"radius": 0.5, "fooled": list(range(8))}, "pass"),
        ("foolbox:pgd", "unbounded", {"radius": 0.5, "fooled": list(range(7))}, "fail"),
        ("foolbox:pgd", "random-noise", {"radius": 0.1, "draws": 10, "fooled": [0]}, "pass"),
        ("foolbox:pgd", "random-noise", {"radius": 0.1, "draws": 10, "fooled": [0, 1]}, "fail"),
        ("torchattacks:square", "random-noise", {"radius": 0.1, "draws": 10, "fooled": [0, 1]}, "warn"),
        ("foolbox:pgd", "active-test", {"radius": 0.1, "planted": [0, 1, 2], "found": [0, 1, 2], "easy": [3]}, "pass"),
        ("foolbox:pgd", "active-test", {"radius": 0.1, "planted": [0, 1, 2], "found": [0, 1], "easy": []}, "warn"),
        ("foolbox:pgd", "active-test", {"radius": 0.1, "planted": [0, 1, 2], "found": [0], "easy": []}, "fail"),
        ("torchattacks:fgsm", "active-test", {"radius": 0.1, "planted": [0, 1], "found": [], "easy": []}, "warn"),
    ],
)
def test_what_runs_told(folder, attack, name, answers, state):
    cell = folder.cell(folder.model(), attack, range(10))
    folder.probes(cell, **{name: {"reason": "", **answers}})
    assert folder.one(name, cell).state == state


@pytest.mark.parametrize(("nearer", "state"), [(0.95, "pass"), (0.8, "warn"), (0.4, "fail")])
def test_without_a_radius_more_steps_come_nearer(folder, nearer, state):
    cell = folder.cell(folder.model(), "foolbox:ddn", range(10), norm="l2", epsilon=None)
    folder.probes(cell, **{"more-steps": {"reason": "", "times": 4, "fooled": [0], "distances": [0.1 * nearer]}})
    assert folder.one("more-steps", cell).state == state


def test_the_page_counts_the_indicators():
    assert f"There are {len(INDICATORS)} failure indicators" in PAGE.read_text(encoding="utf-8")


def test_a_check_has_the_numbers_of_its_sentence():
    check = find("eight-bit", judged("warn", "{lost} of {fooled} are gone", ["b.png"], lost=1, fooled=4), "m", "key")
    assert (check.detail, check.numbers, check.images) == ("1 of 4 are gone", {"lost": 1, "fooled": 4}, ("b.png",))
    assert check.advice == INDICATORS["eight-bit"].advice
    assert "numbers" not in check.document()


@pytest.mark.parametrize(("epsilon", "reach"), [(0.1, 10 * 2 / 255 / 0.1), (0.05, None)])
def test_steps_that_do_not_reach_the_radius_are_named_beside_the_weaker_library(writer, epsilon, reach):
    """Torchattacks' defaults are 10 steps of 2/255."""
    labels = torch.zeros(40, dtype=torch.long)
    right, fooled = torch.tensor([[2.0, 0.0]]).repeat(40, 1), torch.tensor([[0.0, 2.0]]).repeat(40, 1)
    subject = writer.clean("net", right, labels)
    writer.cell(subject, "art:pgd", right, fooled, labels, epsilon=epsilon)
    writer.cell(subject, "torchattacks:pgd", right, right, labels, epsilon=epsilon)
    (text,) = [each.detail for each in check_folder(writer.store.folder) if "weaker: torchattacks:pgd" in each.detail]
    (contenders,) = comparisons_of(read_outcomes(writer.store.folder))
    (pair,) = judge_comparison(contenders)
    for each in (text, pair.sentence):  # of `check`, and of the report
        assert ([f"{reach:.2g}"] if reach else []) == re.findall(
            "its steps together reach ([0-9.]+) of the radius", each
        )
