"""`--stop-when-fooled` and `--order cheap-first`: one cell of several attacks, against the same attacks in full."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch

from davylamp.adapters import Classifier
from davylamp.engine import AttackChoice, Config, ResultsStore, build_table, evaluate, load, make_plan
from davylamp.engine.attack_run import AttackRun
from davylamp.engine.checks.check_folder import check_folder
from davylamp.engine.checks.standings import rank_attacks
from davylamp.engine.plan.rerun import configs_of
from davylamp.engine.query_estimates import estimate_queries
from davylamp.engine.sharing.merge import merge_folders
from davylamp.engine.store.checksummed import Record
from davylamp.engine.store.record_validation import record_error
from davylamp.engine.store.results import read_outcomes
from davylamp.errors import InvalidInput, Unsupported
from davylamp.report.citations.usage import items_used_in
from davylamp.report.parts.sentences import say_strongest_attacks
from davylamp.scoring import build_responses
from davylamp.scoring.items import libraries_of

from ..conftest import Interrupted

PGD = AttackChoice("foolbox:pgd", "linf", 0.05, parameters={"steps": 5, "random_start": False})
FGSM = AttackChoice("torchattacks:fgsm", "linf", 0.05)
DEEPFOOL = AttackChoice("foolbox:deepfool", "linf", 0.05, parameters={"steps": 4})
NAME = "worst-case(torchattacks:fgsm,foolbox:deepfool,foolbox:pgd)"


def plan_of(digits, images, *choices, **settings):
    config = Config(attacks=choices, data="digits", shard_size=6, **{"measures": ("effect", "cost"), **settings})
    return make_plan(config, models={"cnn": digits.classifier}, data=images)


def stopping(digits, images, *choices, **settings):
    return plan_of(digits, images, *choices, **{"order": "cheap-first", "stop_when_fooled": True, **settings})


@pytest.fixture(scope="module")
def full(digits, images, tmp_path_factory):
    """The three attacks on all images, cheapest first."""
    folder = tmp_path_factory.mktemp("full")
    plan = plan_of(digits, images, PGD, FGSM, DEEPFOOL, order="cheap-first")
    evaluate(plan, ResultsStore(folder))
    return folder, plan.cells


@pytest.fixture(scope="module")
def stopped(digits, images, tmp_path_factory):
    """The same, where each image is left alone once it is fooled."""
    folder = tmp_path_factory.mktemp("stopped")
    plan = stopping(digits, images, PGD, FGSM, DEEPFOOL)
    assert evaluate(plan, ResultsStore(folder)).failed == {}
    return folder, plan


def outcome_of(folder, attack):
    return next(each for each in read_outcomes(folder).done if each.cell.attack == attack)


def test_cheap_attacks_come_first(full):
    assert [cell.attack for cell in full[1]] == ["torchattacks:fgsm", "foolbox:deepfool", "foolbox:pgd"]
    assert [*map(estimate_queries, full[1])] == [2.0, 8.0, 10.0]


def test_every_image_is_left_alone_once_it_is_fooled(full, stopped):
    """The oracle is the full run of each attack: none of them draws random numbers."""
    names = [cell.attack for cell in full[1]]
    whole = [outcome_of(full[0], name).columns for name in names]
    mine = outcome_of(stopped[0], NAME).columns
    fooled = np.stack([each["success"] for each in whole])
    assert 0 < fooled[0].sum() < fooled.any(0).sum() < fooled.shape[1]  # or this test says little
    first = np.where(fooled.any(0), fooled.argmax(0), -1)
    tried = np.where(first >= 0, first + 1, len(names))
    assert mine["winner"].tolist() == first.tolist()
    assert mine["tried"].tolist() == tried.tolist()
    assert mine["success"].tolist() == fooled.any(0).tolist()
    for kind in ("forwards", "backwards"):
        spent = np.stack([each[kind] for each in whole])
        ran = np.arange(len(names))[:, None] < tried
        assert mine[kind].tolist() == np.where(ran, spent, 0).sum(0).tolist()
    for name in ("distance", "linf", "adv_predicted"):
        took = np.stack([each[name] for each in whole])[first, np.arange(len(first))]
        np.testing.assert_allclose(mine[name][first >= 0], took[first >= 0], rtol=1e-5)


def test_the_worst_case_is_that_of_the_full_cells_and_costs_less(full, stopped):
    worst = [
        build_table(folder, by="models", metrics=["RA"], bootstrap=0).rows[0].metrics["RA"].value
        for folder in (full[0], stopped[0])
    ]
    assert worst[0] == worst[1]
    alone = build_table(stopped[0], by="pairs", metrics=["RA", "MR"], bootstrap=0).rows[0].metrics
    assert alone["RA"].value == worst[0] == pytest.approx(1 - alone["MR"].value)
    passes = [load(folder)[["forwards", "backwards"]].sum().sum() for folder in (full[0], stopped[0])]
    assert passes[1] < 0.8 * passes[0]


def test_the_cell_says_what_it_is_and_shares_no_key_with_a_full_one(full, stopped, digits, images):
    (cell,) = stopped[1].cells
    assert cell.attack == NAME
    assert cell.attack_title == NAME
    assert cell.key not in {each.key for each in full[1]}
    assert [member.key for member in cell.members] != [each.key for each in full[1]]
    assert [(each.attack, each.parameters) for each in cell.members] == [(e.attack, e.parameters) for e in full[1]]
    others = [
        stopping(digits, images, PGD, FGSM, DEEPFOOL, order="given"),
        stopping(digits, images, PGD, FGSM),
        stopping(digits, images, AttackChoice("foolbox:pgd", "linf", 0.05, parameters={"steps": 4}), FGSM, DEEPFOOL),
    ]
    assert len({cell.key, *(plan.cells[0].key for plan in others)}) == 4
    assert cell.version.startswith("worst case 1, torchattacks ")
    assert "foolbox " in cell.version
    assert stopped[1].choices == {cell.key: (1, 2, 0)}


def test_the_record_is_read_back_and_the_folder_run_again(stopped, digits, images):
    outcome = outcome_of(stopped[0], NAME)
    assert outcome.cell.key == stopped[1].cells[0].key
    assert not outcome.is_minimum
    (config,) = configs_of([outcome.cell])
    again = make_plan(config, models={"cnn": digits.classifier}, data=images)
    assert [cell.key for cell in again.cells] == [outcome.cell.key]
    assert evaluate(again, ResultsStore(stopped[0])).kept == 1


def test_readers_hear_what_was_left_to_each_attack(full, stopped):
    names = [cell.attack for cell in full[1]]
    fooled = np.stack([outcome_of(full[0], name).columns["success"] for name in names])
    left, parts = np.ones(fooled.shape[1], bool), []
    for name, hit in zip(names, fooled, strict=True):
        of = f"{left.sum()}{' left' if parts else ''}"
        parts.append(f"{name} fooled {(hit & left).sum()} of {of}")
        left &= ~hit
    line = next(note for note in read_outcomes(stopped[0]).notes if note.startswith(NAME))
    assert line.startswith(f"{NAME} on cnn: {', '.join(parts)}; ")
    assert not [note for note in read_outcomes(full[0]).notes if "left" in note]
    states = {check.detail for check in check_folder(stopped[0]) if check.state == "unknown"}
    assert "a worst case over several attacks; run each attack separately" in states
    assert {"fgsm", "deepfool", "pgd"} <= {used.name for used in items_used_in(stopped[0]) if used.kind == "attack"}
    assert libraries_of([f"{NAME} linf 0.05", "foolbox:pgd linf 0.05"]) == ["davylamp", "foolbox"]


def test_a_ranking_has_single_attacks_or_worst_cases_and_never_both(full, stopped):
    alone, together = load(full[0]), load(stopped[0])
    for subjects in ("implementations", "models"):
        both = build_responses(pd.concat([together, alone], ignore_index=True), subjects)
        by_itself = build_responses(alone, subjects)
        assert both.subjects == by_itself.subjects
        np.testing.assert_array_equal(both.values, by_itself.values)
        assert any(note.startswith(f"omitted: {NAME}: each attack") for note in both.notes)
        assert not any(NAME in note for note in by_itself.notes)
    assert build_responses(together, "implementations").subjects[0].startswith(NAME)


def test_no_worst_case_is_the_strongest_attack(full, stopped, tmp_path):
    merge_folders([full[0], stopped[0]], tmp_path / "both")
    (said,) = say_strongest_attacks(rank_attacks(read_outcomes(tmp_path / "both")))
    (by_itself,) = say_strongest_attacks(rank_attacks(read_outcomes(full[0])))
    assert (said.lead, said.text, said.proof) == (by_itself.lead, by_itself.text, by_itself.proof)
    assert say_strongest_attacks(rank_attacks(read_outcomes(stopped[0])))[0].lead == NAME


def test_a_killed_run_ends_with_the_same_records(stopped, digits, images, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        evaluate(stopped[1], ResultsStore(tmp_path), executor=Interrupted(2))
    assert ResultsStore(tmp_path).keys("parts")
    evaluate(stopping(digits, images, PGD, FGSM, DEEPFOOL), ResultsStore(tmp_path))
    names = [{path.name for path in (folder / "cells").iterdir()} for folder in (stopped[0], tmp_path)]
    assert names[0] == names[1]  # the name has a hash over the content, the times aside


def test_the_images_of_a_run_add_up_to_those_of_the_plan(digits, images, tmp_path):
    seen = []
    plan = stopping(digits, images, PGD, FGSM)
    evaluate(plan, ResultsStore(tmp_path), progress=lambda name, count: seen.append((name, count)))
    assert sum(count for _, count in seen) == plan.images
    assert all(count >= 0 for _, count in seen)


def test_targets_and_surrogates_are_those_of_the_full_cells(digits, images, tmp_path):
    other = copy.deepcopy(digits.classifier.model)
    other[-1].weight.data *= 1.1
    surrogate = Classifier(other)
    for name, surrogates, target in (("aimed", (), "random"), ("made", ("other",), "")):
        choices = [
            AttackChoice(each, "linf", 0.12, target=target, parameters={"steps": 3} if "pgd" in each else {})
            for each in ("torchattacks:fgsm", "foolbox:pgd")
        ]
        folders = []
        for stop in (False, True):
            config = Config(
                attacks=tuple(choices), data="digits", measures=("effect",), stop_when_fooled=stop, surrogate=surrogates
            )
            models = {"cnn": digits.classifier}
            plan = make_plan(config, models=models, data=images, surrogates={"other": surrogate})
            folders.append(tmp_path / f"{name}{stop}")
            assert evaluate(plan, ResultsStore(folders[-1])).failed == {}
        whole, mine = read_outcomes(folders[0]).done, read_outcomes(folders[1]).done[0]
        assert mine.columns["success"].tolist() == np.any([each.columns["success"] for each in whole], 0).tolist()
        if name == "made":
            assert mine.cell.knowledge == "transfer"
            assert mine.columns["forwards"].sum() == 0 < mine.columns["surrogate_forwards"].sum()
        else:
            assert mine.columns["target"].tolist() == whole[0].columns["target"].tolist()


BROKEN = """
import torch

def nan(model, inputs, labels, epsilon):
    model(inputs)
    return torch.full_like(inputs, float("nan"))

def still(model, inputs, labels, epsilon):
    model(inputs)
    return (inputs + 1e-3).clamp(0, 1)

def crash(model, inputs, labels, epsilon):
    raise ValueError("no")
"""


def test_a_violation_of_one_attack_is_one_of_the_whole_unless_another_fools(digits, images, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(BROKEN)
    choices = [AttackChoice(f"{file}:{name}", "linf", 0.05) for name in ("nan", "still")]
    plan = stopping(digits, images, *choices, FGSM, order="given")
    assert "code " in plan.cells[0].version
    assert evaluate(plan, ResultsStore(tmp_path / "out")).failed == {}
    columns = read_outcomes(tmp_path / "out").done[0].columns
    assert set(columns["winner"]) == {-1, 2}
    assert columns["violated"].tolist() == (columns["winner"] == -1).tolist()
    assert not columns["robust"].any()
    assert {"nan"} <= set(" ".join(columns["violations"][columns["winner"] == -1]).split())
    assert set(columns["violations"][columns["winner"] == 2]) == {""}
    crashing = stopping(digits, images, FGSM, AttackChoice(f"{file}:crash", "linf", 0.05))
    (reason,) = evaluate(crashing, ResultsStore(tmp_path / "crashed")).failed.values()
    assert "mine.py:crash" in reason


@pytest.mark.parametrize(
    ("choices", "error", "message"),
    [
        ([PGD], InvalidInput, "several attacks"),
        ([PGD, AttackChoice("foolbox:fgsm", "linf", 0.1)], InvalidInput, "several attacks"),
        ([PGD, AttackChoice("best(foolbox:pgd)", "linf")], InvalidInput, "best.foolbox:pgd"),
        ([PGD, AttackChoice("foolbox:deepfool", "linf")], InvalidInput, "foolbox:deepfool"),
        ([PGD, AttackChoice("art:uap", "linf", 0.05)], Unsupported, "art:uap"),
        ([PGD, AttackChoice("foolbox:pgd", "linf", 0.05, parameters={"steps": 9})], InvalidInput, "foolbox:pgd twice"),
        ([PGD, AttackChoice(lambda model, inputs, labels: inputs, "linf", 0.05)], Unsupported, "my_file.py"),  # pyright: ignore[reportArgumentType]
        ([AttackChoice(NAME, "linf", 0.05)], InvalidInput, "worst-case"),
    ],
)
def test_what_cannot_stop_is_refused_in_a_line(digits, images, choices, error, message):
    with pytest.raises(error, match=message) as raised:
        stopping(digits, images, *choices)
    assert "\n" not in str(raised.value)


def test_each_threat_model_and_seed_is_a_cell_of_its_own(digits, images):
    alone = AttackChoice("foolbox:fgsm", "linf", 0.1)
    plan = stopping(digits, images, PGD, FGSM, alone, seeds=(0, 1))
    assert [cell.attack for cell in plan.cells].count("foolbox:fgsm") == 2  # one attack has nothing to stop for
    several = [cell for cell in plan.cells if cell.search.kind == "worst-case"]
    assert {(cell.threat_model.epsilon, cell.seed) for cell in several} == {(0.05, 0), (0.05, 1)}


def test_a_random_model_is_attacked_until_all_of_its_draws_are_fooled(digits, images, tmp_path):
    """Where a weak attack fools half of the draws a strong one fools more: the rates are means of these shares."""

    class Noisy(torch.nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net, self.davylamp_random = net, True

        def forward(self, inputs):
            return self.net(inputs + 0.2 * torch.randn_like(inputs))

    def columns_of(name, *choices, **settings):
        """Of the random model; another one is beside it."""
        config = Config(attacks=choices, data="digits", measures=("effect",), judge_samples=10, eot=4, **settings)
        noisy = Classifier(Noisy(digits.classifier.model), random=True)
        plan = make_plan(config, models={"noisy": noisy, "plain": digits.classifier}, data=images)
        assert evaluate(plan, ResultsStore(tmp_path / name)).failed == {}
        return next(each.columns for each in read_outcomes(tmp_path / name).done if each.cell.subject.model == "noisy")

    first, mine = columns_of("first", FGSM), columns_of("both", FGSM, PGD, stop_when_fooled=True)
    attacked, before = first["attacked"], first["draws_fooled"]
    assert mine["tried"].tolist() == np.where(attacked, np.where(before < 1, 2, 1), 0).tolist()
    assert (mine["draws_fooled"] >= before)[attacked].all()
    half = attacked & (before >= 0.5) & (before < 1)
    assert (mine["draws_fooled"] > before)[half].any()
    better = (mine["draws_fooled"] > before)[attacked & mine["success"]]
    assert (mine["winner"][attacked & mine["success"]] == np.where(better, 1, 0)).all()
    notes = build_table(tmp_path / "both", by="models", metrics=["RA"]).notes
    assert not any("comparable" in note for note in notes)
    assert any("noisy: for a random model the worst case" in note for note in notes)


def test_a_spec_that_lacks_the_parameters_of_an_attack_is_damaged(stopped):
    store = ResultsStore(stopped[0])
    (key,) = store.keys("cells")
    record = store.read("cells", key)
    spec = {**record.meta["spec"], "parameters": {"foolbox:pgd": {}}}
    lame = Record(record.table, {**record.meta, "spec": spec})
    assert record_error("cells", key, record) == ""
    assert "spec" in record_error("cells", AttackRun.from_spec(spec).key, lame)
