"""Cells: what they contain, and keys that change exactly when something that matters does."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import nn

import davylamp
from davylamp.adapters import Classifier, ThreatModel
from davylamp.adapters.data.datasets import Data
from davylamp.adapters.models.identity.digest import digest_data, digest_model
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.attack_run import AttackRun, ModelOnData
from davylamp.errors import DavylampError, InvalidInput, Unsupported

SUBJECT = ModelOnData("net", "aa", "digits", "bb", 100)
CELL = AttackRun(SUBJECT, "foolbox:pgd", ThreatModel("linf", 0.1), {"steps": 5}, measures=("effect",))


def test_a_cell_survives_its_spec():
    cell = replace(CELL, grid={"step_size": (0.1, 0.2)}, parameters={"step_size": 1 / 3})
    assert AttackRun.from_spec(cell.spec) == cell
    assert AttackRun.from_spec(cell.spec).key == cell.key
    a, b = (replace(CELL, parameters=p) for p in ({"steps": 5, "decay": 1.0}, {"decay": 1.0, "steps": 5}))
    assert a.key == b.key


@pytest.mark.parametrize(
    "change",
    [
        {"subject": replace(SUBJECT, model_digest="ab")},
        {"subject": replace(SUBJECT, data_digest="ab")},
        {"subject": replace(SUBJECT, images=99)},
        {"attack": "art:pgd"},
        {"attack": "best(foolbox:pgd)"},
        {"threat_model": ThreatModel("linf", 0.10001)},
        {"threat_model": ThreatModel("linf", 0.1, targeted=True)},
        {"parameters": {"steps": 6}},
        {"grid": {"steps": (1, 2)}},
        {"seed": 1},
        {"pixels": True},
        {"measures": ()},
        {"shard_size": 32},
        {"version": "9"},
    ],
)
def test_whatever_changes_the_records_changes_the_key(change):
    assert replace(CELL, **change).key != CELL.key


def test_shards_cover_the_images_once():
    cell = replace(CELL, shard_size=30)
    assert [list(cell.shard_slice(s)) for s in range(cell.shards)] == [
        list(range(0, 30)), list(range(30, 60)), list(range(60, 90)), list(range(90, 100))
    ]  # fmt: skip
    universal = replace(cell, attack="art:uap")
    assert universal.shards == 1
    assert universal.shard_slice(0) == range(100)


def test_digests_see_weights_preprocessing_and_pixels():
    def net(seed, **settings):
        torch.manual_seed(seed)
        return Classifier(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), **settings)

    plain = digest_model(net(0))
    assert digest_model(net(0)) == plain
    others = [net(1), net(0, mean=[0.5] * 3, std=[1.0] * 3), net(0, crop=2)]
    assert len({plain, *map(digest_model, others)}) == 4
    images, labels = torch.rand(2, 3, 4, 4), torch.tensor([0, 1])
    changed = images.clone()
    changed[0, 0, 0, 0] += 1e-7
    digests = {digest_data(images, labels), digest_data(changed, labels), digest_data(images, labels.flip(0))}
    assert len(digests) == 3


def test_a_canonical_name_means_every_library(digits, images):
    config = Config(attacks=(AttackChoice("pgd", parameters={"steps": 3}),), seeds=(0, 7))
    cells = make_plan(config, models={"a": digits.classifier, "b": digits.classifier}, data=images).cells
    assert [(c.subject.model, c.attack, c.seed) for c in cells] == [
        (m, f"{library}:pgd", s)
        for m in "ab"
        for library in ("art", "foolbox", "torchattacks", "adv-lib", "torchattack", "cleverhans", "secml-torch")
        for s in (0, 7)
    ]
    assert all(c.parameters["step_size"] == pytest.approx(2.5 * c.threat_model.epsilon / 3) for c in cells)
    one = make_plan(replace(config, libraries=("art",)), models={"a": digits.classifier}, data=images).cells
    assert {c.attack for c in one} == {"art:pgd"}


def test_a_limit_of_queries_holds_for_every_attack_and_for_a_grid_of_limits(digits, images):
    choices = [AttackChoice("foolbox:pgd", "linf", parameters={"max_queries": limit}) for limit in (20, 80)]
    choices.append(AttackChoice("best(foolbox:pgd)", "linf", grid={"max_queries": (5, 500)}))
    config = Config(attacks=tuple(choices), max_queries=50)
    *cells, search = make_plan(config, models={"a": digits.classifier}, data=images).cells
    assert [cell.parameters["max_queries"] for cell in cells] == [20, 50]
    assert search.grid == {"max_queries": (5, 50)}


def test_a_relative_step_becomes_a_number_with_the_library_s_own_defaults_too(digits, images):
    (cell,) = make_plan(
        Config(attacks=(AttackChoice("foolbox:pgd", defaults=True),), max_queries=50),
        models={"a": digits.classifier},
        data=images,
    ).cells
    assert cell.parameters == {"max_queries": 50}  # nothing else is passed on
    choice = AttackChoice("foolbox:pgd", "linf", 0.3, parameters={"step_size": "2 epsilon / steps"}, defaults=True)
    with pytest.raises(InvalidInput, match="step_size '2 epsilon / steps' needs steps"):
        make_plan(Config(attacks=(choice,)), models={"a": digits.classifier}, data=images)
    given = replace(choice, parameters={**choice.parameters, "steps": 4})
    (cell,) = make_plan(Config(attacks=(given,)), models={"a": digits.classifier}, data=images).cells
    assert cell.parameters == {"steps": 4, "step_size": 0.15}


def test_a_search_keeps_its_step_size_relative(digits, images):
    config = Config(attacks=(AttackChoice("best(foolbox:pgd)"), AttackChoice("best(foolbox:pgd)", "linf", 0.3)))
    open_ended, bounded = make_plan(config, models={"a": digits.classifier}, data=images).cells
    assert open_ended.threat_model.epsilon is None
    assert bounded.threat_model.epsilon == 0.3
    assert bounded.parameters["step_size"] == "2.5 epsilon / steps"


@pytest.mark.parametrize(
    ("config", "error"),
    [
        (Config(attacks=(AttackChoice("pgd", parameters={"overshoot": 0.1}),)), Unsupported),
        (Config(attacks=(AttackChoice("foolbox:pgd", "l0"),)), Unsupported),
        (Config(attacks=(AttackChoice("nothing"),)), DavylampError),
        (Config(attacks=(AttackChoice("foolbox:nothing"),)), DavylampError),
        (Config(attacks=(AttackChoice("apgd-t"),), libraries=("foolbox",)), InvalidInput),
        (Config(attacks=(AttackChoice("foolbox:pgd", parameters={"steps": 0}),)), InvalidInput),
        (Config(attacks=(AttackChoice("foolbox:pgd", parameters={"steps": "5"}),)), InvalidInput),
        (Config(attacks=(AttackChoice("best(foolbox:cw)"),)), Unsupported),
        (Config(attacks=(AttackChoice("best(art:uap)", "linf"),)), Unsupported),
        (Config(attacks=(AttackChoice("best(foolbox:spatial)"),)), Unsupported),
        (Config(attacks=(AttackChoice("best(foolbox:pgd)", parameters={"steps": 0}),)), InvalidInput),
        (Config(attacks=(AttackChoice("best(foolbox:pgd)", grid={"steps": (5, 0)}),)), InvalidInput),
        (Config(attacks=(AttackChoice("best(foolbox:pgd)", grid={"overshoot": (0.1,)}),)), Unsupported),
    ],
)
def test_what_cannot_run_is_refused_before_anything_runs(config, error, digits, images):
    with pytest.raises(error):
        make_plan(config, models={"a": digits.classifier}, data=images)


@pytest.mark.parametrize(
    ("attack", "words"),
    [
        ("foolbox:pgd", {"precision": "bfloat16"}),
        ("best(foolbox:pgd)", {"precision": "bfloat16"}),
        ("best(adv-lib:fmn,foolbox:pgd)", {"precision": "bfloat16", "max_queries": 60}),
    ],
)
def test_a_precision_is_a_part_of_every_cell_and_of_what_it_runs(digits, tmp_path, attack, words):
    seen = []

    class Noting(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = deepcopy(digits.module)

        def forward(self, inputs):
            logits = self.net(inputs)
            seen.append(logits.dtype)
            return logits

    data = Data(digits.inputs[:3], digits.labels[:3], ["a", "b", "c"])
    config = Config(attacks=(AttackChoice(attack, "linf"),), max_queries=60, measures=("cost",))
    chosen = replace(config, precision="bfloat16")
    model = Classifier(Noting())
    (plain,), (cell,) = (make_plan(each, models={"net": model}, data=data).cells for each in (config, chosen))
    assert words.items() <= cell.parameters.items()
    assert "precision" not in plain.parameters
    assert plain.key != cell.key
    seen.clear()
    assert evaluate(make_plan(chosen, models={"net": model}, data=data), ResultsStore(tmp_path)).done == 1
    assert set(seen) == {torch.bfloat16, torch.float32}
    assert seen.count(torch.bfloat16) > 20


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        (AttackChoice("foolbox:pgd", "linf", 0.1, parameters={"precision": "tf32"}), "tf32 needs an NVIDIA"),
        (
            AttackChoice("best(foolbox:pgd)", "linf", 0.1, grid={"precision": ("float32", "tf32")}),
            "tf32 needs an NVIDIA",
        ),
        (AttackChoice("torchattack:fia", "linf", 0.1, parameters={"precision": "bfloat16"}), "reads layer outputs"),
    ],
)
def test_a_precision_that_cannot_be_had_leaves_a_cell_out_before_anything_runs(digits, choice, why):
    data = Data(digits.inputs[:3], digits.labels[:3], ["a", "b", "c"])
    usual = AttackChoice("foolbox:pgd", "linf", 0.1)
    plan = make_plan(Config(attacks=(choice, usual)), models={"net": digits.classifier}, data=data)
    assert [cell.parameters.get("precision") for cell in plan.cells] == [None]
    assert [reason for reason in plan.failed.values() if why in reason] == [*plan.failed.values()] != []


def test_images_that_repeat_are_said(digits):
    twice = Data(digits.inputs[:3].repeat(2, 1, 1, 1), digits.labels[:3].repeat(2), list("abcdef"))
    config = Config(attacks=(AttackChoice("foolbox:pgd", "linf", 0.1),))
    plan = make_plan(config, models={"one": digits.classifier, "two": digits.classifier}, data=twice)
    said = "3 of 6 images duplicate an earlier image; intervals treat duplicates as independent"
    assert [note for note in plan.notes if "duplicate" in note] == [said]


def test_images_of_the_class_that_is_aimed_at_are_said(digits):
    aim = int(digits.labels[0])
    data = Data(digits.inputs, digits.labels, [str(place) for place in range(16)])
    choices = [AttackChoice("foolbox:pgd", "linf", 0.1, target=target) for target in (str(aim), "random")]
    plan = make_plan(Config(attacks=tuple(choices)), models={"net": digits.classifier}, data=data)
    count = int((digits.labels == aim).sum())
    said = f"target {aim}: {count} of 16 images have this class as label; their target is the next class"
    assert [note for note in plan.notes if "next class" in note] == [said]
    case, settings = digits, {"norm": "linf", "epsilon": 0.1, "target": aim, "steps": 2}
    result = davylamp.run_attack("foolbox:pgd", case.classifier, case.inputs, case.labels, **settings)
    compared = davylamp.compare("pgd", case.classifier, case.inputs, case.labels, libraries=["foolbox"], **settings)
    assert said in result.notes
    assert said in compared.notes
    assert set(result.targets[digits.labels == aim].tolist()) == {(aim + 1) % 10}


def test_a_class_that_a_model_does_not_have_is_refused_before_anything_runs(digits):
    data = Data(digits.inputs[:3], digits.labels[:3], ["a", "b", "c"])
    aims = [AttackChoice("foolbox:pgd", "linf", 0.1, target=target) for target in ("12", "random")]
    plan = make_plan(Config(attacks=tuple(aims)), models={"net": digits.classifier}, data=data)
    assert [cell.target for cell in plan.cells] == ["random"]
    assert [*plan.failed.values()] == ["expected a target class from 0 to 9, got 12"]
    with pytest.raises(Unsupported, match=r"from 0 to 9, got 12$"):  # and no advice on other kinds of attacks
        make_plan(Config(attacks=tuple(aims[:1])), models={"net": digits.classifier}, data=data)
