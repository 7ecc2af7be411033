"""Models that give labels or probabilities beside one of logits, in one folder, through everything that reads it."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import davylamp
from davylamp.adapters.data.datasets import Data
from davylamp.adapters.models.classifier import Classifier
from davylamp.adapters.models.identity.digest import digest_model
from davylamp.adapters.models.zoo.load import load_model
from davylamp.engine import Config, ResultsStore, compare, evaluate, make_plan
from davylamp.engine.challenge.challenge import challenge
from davylamp.engine.plan.config import AttackChoice
from davylamp.engine.store.results import read_outcomes
from davylamp.engine.tables.defence_table import build_defence
from davylamp.errors import Unsupported

ATTACKS = ["foolbox:pgd", "torchattacks:square", "foolbox:salt-and-pepper"]
CONFIDENCES = ["CC", "ACAC", "ACTC", "NTE", "AIAC", "ARTC", "FR@5", "FR_AUC"]


class Ending(nn.Module):
    def __init__(self, net, end):
        super().__init__()
        self.net, self.end = net, end

    def forward(self, inputs):
        return self.end(self.net(inputs))


class Pale(nn.Module):
    def forward(self, inputs):
        return 0.5 * inputs + 0.1


def images(digits, count):
    return Data(digits.inputs[:count], digits.labels[:count], [str(place) for place in range(count)])


def labels_of(logits):
    return logits.argmax(1)


def wrapped_probabilities(logits):
    return {"probs": logits.softmax(1)}


@pytest.fixture(scope="module")
def folder(digits, tmp_path_factory):
    out = tmp_path_factory.mktemp("outputs")
    models = {
        "logits": digits.module,
        "soft": Ending(digits.module, wrapped_probabilities),
        "labels": Ending(digits.module, labels_of),
        "pale": Ending(nn.Sequential(Pale(), digits.module), labels_of),
    }
    config = Config(
        attacks=tuple(AttackChoice(name, "l2", 9.0, parameters={"steps": 40}) for name in ATTACKS),
        measures=("effect", "attention", "cost", "distance", "confusion"),
        shard_size=5,
        transfer="full",
        keep_images=True,
    )
    plan = make_plan(config, models={name: Classifier(each) for name, each in models.items()}, data=images(digits, 8))
    assert not evaluate(plan, ResultsStore(out)).failed
    return out, plan


def values(outcomes, symbol):
    return {
        (each.cell.subject.model, each.cell.attack): each.columns[symbol]
        for each in outcomes.done
        if symbol in each.columns
    }


def test_pairs_that_ask_for_what_is_not_given_are_left_out_with_why(folder, run):
    out, plan = folder
    for model in ("labels", "pale"):
        assert plan.failed[f"foolbox:pgd on {model}"] == "needs gradients, but the model returns labels only"
        assert plan.failed[f"torchattacks:square on {model}"] == "needs scores, and the model returns labels only"
    assert len(plan.failed) == 4
    code, printed, _ = run("status", str(out))
    assert code == 0
    assert "omitted: foolbox:pgd on labels: needs gradients, but the model returns labels only" in printed


def test_labels_fool_as_logits_do_and_probabilities_measure_as_logits_do(folder):
    outcomes = read_outcomes(folder[0], symbols=["FR@5", "FR@1"])
    fooled, sizes = values(outcomes, "MR"), values(outcomes, "l2")
    for model in ("soft", "labels"):
        assert (fooled[model, ATTACKS[2]] == fooled["logits", ATTACKS[2]]).all()
        assert (sizes[model, ATTACKS[2]] == sizes["logits", ATTACKS[2]]).all()
    assert fooled["labels", ATTACKS[2]].sum() > 2
    for symbol in ("ACAC", "NTE", "AIAC", "FR_AUC", "FR@5"):
        numbers = values(outcomes, symbol)
        for attack in ATTACKS[2:]:
            assert numbers["soft", attack] == pytest.approx(numbers["logits", attack], abs=1e-5, nan_ok=True)
    changed = values(outcomes, "FR@1")["labels", ATTACKS[2]]
    assert (changed == fooled["labels", ATTACKS[2]])[~np.isnan(changed)].all()
    assert np.nansum(changed) > 2


def test_what_needs_confidences_is_missing_and_never_zero(folder, run):
    outcomes = read_outcomes(folder[0], symbols=["FR@5"])
    for symbol in CONFIDENCES[1:]:
        column = values(outcomes, symbol)["labels", ATTACKS[2]]
        assert torch.tensor(column).isnan().all(), symbol
    clean = {each.subject.model: each for each in outcomes.clean.values()}
    assert torch.tensor(clean["labels"].columns["CC"]).isnan().all()
    assert not clean["labels"].has_confidences
    assert clean["soft"].has_confidences
    options = [word for symbol in CONFIDENCES for word in ("--metric", symbol)]
    code, printed, err = run("table", str(folder[0]), "--by", "models", "--json", *options, "--metric", "MR")
    assert code == 0, err
    rows = {row["model"]: row for row in json.loads(printed)["rows"]}
    assert all(_value(rows["labels"], symbol) is None for symbol in CONFIDENCES)
    assert all(_value(rows["soft"], symbol) is not None for symbol in CONFIDENCES)
    assert _value(rows["labels"], "MR") is not None


def _value(row, symbol):
    entry = row.get(symbol, row.get("metrics", {}).get(symbol))
    return entry["value"] if isinstance(entry, dict) else entry


def test_the_folder_goes_through_everything_that_reads_it(folder, run, tmp_path):
    out = str(folder[0])
    page = tmp_path / "report.html"
    for command in (("table", out, "--transfer"), ("report", out, "-o", str(page)), ("check", out)):
        code, printed, err = run(*command)
        assert code in (0, 1), err
        assert "Traceback" not in printed + err
    text = page.read_text(encoding="utf-8")
    assert "returns labels only" in text
    assert "took the entry" in text
    assert "nan%" not in text
    code, printed, err = run("rank", out, "--unequal", "keep", "--method", "irt", "--json")
    assert code == 0, err
    assert "labels" in printed


def test_what_cannot_be_asked_of_a_model_is_no_failure_of_it(folder, run):
    _, printed, _ = run("check", str(folder[0]), "--json")
    checks = json.loads(printed)["checks"]
    said = {each["name"]: each for each in checks if each["subject"] == "labels"}
    for name in ("gradients", "logits"):
        assert said[name]["state"] == "unknown"
        assert said[name]["detail"].startswith("-: the model returns labels only")
    assert said["normalisation"]["state"] in ("pass", "unknown", "warn")
    assert "raised" not in said["normalisation"]["detail"]
    assert not [each for each in checks if each["state"] == "fail" and each["subject"] == "labels"]


def test_transferred_examples_have_no_confidence_there(folder):
    outcomes = read_outcomes(folder[0])
    named = {each.subject.key: each.subject.model for each in outcomes.clean.values()}
    seen = {}
    for key in outcomes.store.keys("transfer"):
        seen.setdefault(named[key.partition("-")[2]], []).append(outcomes.store.read("transfer", key).table)
    assert all("adv_probability" not in table.column_names for table in seen["labels"])
    assert all("adv_probability" in table.column_names for table in seen["soft"])
    assert all(table["adv_predicted"].null_count == 0 for table in seen["labels"])


def test_a_defence_of_a_label_only_model_has_no_confidences(folder):
    table = build_defence(folder[0], "logits", "labels", metrics=["CAV", "CRR", "CCV", "COS", "MRV"], bootstrap=10)
    clean = table.rows[0].metrics
    assert clean["CAV"].value == 0
    assert torch.tensor([clean["CCV"].value, clean["COS"].value]).isnan().all()


def test_nothing_left_is_one_line(digits, tmp_path):
    labels = Ending(digits.module, labels_of)
    case = digits.inputs[:4], digits.labels[:4]
    with pytest.raises(Unsupported) as caught:
        davylamp.evaluate({"labels": labels}, *case, attacks=["pgd", "square"], norm="linf", epsilon=0.1, out=tmp_path)
    line = str(caught.value)
    assert "art:pgd on labels, foolbox:pgd on labels" in line
    assert "needs gradients, but the model returns labels only; " in line
    assert "needs scores, and the model returns labels only" in line
    assert "\n" not in line
    targeted = {"norm": "l2", "target": "second-likely", "out": tmp_path}
    with pytest.raises(Unsupported, match="the target second-likely needs scores"):
        davylamp.evaluate({"labels": labels}, *case, attacks=["foolbox:hopskipjump"], **targeted)
    for search in ("best(foolbox:pgd)", "at-saturation(foolbox:pgd)", "best(foolbox:ddn,foolbox:boundary)"):
        with pytest.raises(Unsupported, match="needs gradients, but the model returns labels only"):
            davylamp.evaluate({"labels": labels}, *case, attacks=[search], norm="l2", out=tmp_path)


def test_examples_of_a_surrogate_are_judged_by_labels(digits, tmp_path):
    labels, case = Ending(digits.module, labels_of), (digits.inputs[:4], digits.labels[:4])
    other = {"surrogate": {"other": nn.Sequential(digits.module, nn.Identity())}}
    rules = {"norm": "linf", "epsilon": 0.1, "out": tmp_path, "measures": ("effect",)}
    davylamp.evaluate({"labels": labels}, *case, attacks=["foolbox:pgd"], **other, **rules)
    outcome = read_outcomes(tmp_path).done[0]
    assert outcome.cell.knowledge == "transfer"
    assert outcome.columns["success"].any()


def test_a_killed_run_of_labels_goes_on_to_the_same_records(digits, tmp_path):
    """The classes that are known are those of all images, whichever part of them is attacked."""
    config = Config(
        attacks=(AttackChoice(ATTACKS[2], "l2", 9.0, parameters={"steps": 40}),), measures=("effect",), shard_size=3
    )

    def run_in(out, lost=False):
        models = {"m": Classifier(Ending(digits.module, labels_of))}
        plan = make_plan(config, models=models, data=images(digits, 8))
        (cell,), store = plan.cells, ResultsStore(out)
        evaluate(plan, store)
        for kind, key in (("cells", cell.key), ("clean", cell.subject.key)) if lost else ():
            store.remove(kind, key)
        return cell.key

    assert len({run_in(tmp_path / "a"), run_in(tmp_path / "b", lost=True), run_in(tmp_path / "b")}) == 1
    (whole,), (again,) = (read_outcomes(tmp_path / name, keep_logits=lambda _: True).done for name in "ab")
    assert torch.equal(whole.adv_logits, again.adv_logits)
    assert (whole.columns["l2"] == again.columns["l2"]).all()
    assert whole.adv_logits.shape == (8, int(digits.labels[:8].max()) + 2)


def test_what_a_name_says_is_part_of_the_cell(digits_files, run):
    shared = ("--data", "npz:images.npz", "--limit", "4", "--attacks", "foolbox:salt-and-pepper")
    shared += ("--norm", "l2", "--epsilon", "9", "-o", "r", "--models", "net.py:build")
    assert run("evaluate", *shared)[0] == 0
    code, _, err = run("evaluate", "--outputs", "labels", *shared)
    assert code == 0, err
    outcomes = read_outcomes("r")
    cells = {each.cell.subject.model: each.cell for each in outcomes.done}
    assert {*cells} == {"net.py:build", "net.py:build+outputs:labels"}
    assert len({each.subject.model_digest for each in cells.values()}) == 2
    for name, cell in cells.items():  # so that whoever reads the folder finds the same model
        assert digest_model(load_model(name), name) == cell.subject.model_digest
    code, _, err = run("evaluate", "--outputs", "scores", *shared)
    assert (code, "expected outputs as" in err, "got 'scores'" in err) == (1, True, True)


ONE_LOGIT = """
import torch
from torch import nn


def make():
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 1, bias=False))
    with torch.no_grad():
        net[1].weight.copy_(torch.linspace(-1, 1, 64)[None])
    return net
"""


def test_one_logit_is_said_on_the_command_line(tmp_path, monkeypatch, run):
    """A linear model of one logit: what linf 0.1 fools follows from its weights."""
    (tmp_path / "one.py").write_text(ONE_LOGIT)
    inputs = 0.3 + 0.4 * torch.rand(12, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    weight = torch.linspace(-1, 1, 64)
    z = inputs.flatten(1) @ weight
    np.savez(tmp_path / "d.npz", inputs=inputs.numpy(), labels=(z > 0).long().numpy())
    monkeypatch.chdir(tmp_path)
    shared = ("--data", "npz:d.npz", "--attacks", "foolbox:pgd", "--epsilon", "0.03", "-o", "r")
    code, _, err = run("evaluate", "--models", "one.py:make", *shared)
    assert (code, "logit or " in err) == (1, True)
    code, _, err = run("evaluate", "--models", "one.py:make", "--outputs", "logit", *shared)
    assert code == 0, err
    (outcome,) = read_outcomes("r").done
    fooled = (z.abs() < 0.03 * weight.abs().sum()).numpy()
    assert 0 < fooled.sum() < 12
    assert (outcome.columns["success"].astype(bool) == fooled).all()


def test_compare_and_challenge_refuse_in_one_line(digits, tmp_path):
    labels, case = Classifier(Ending(digits.module, labels_of)), (digits.inputs[:4], digits.labels[:4])
    with pytest.raises(Unsupported, match=r"^art:pgd needs gradients, but the model returns labels only; choose a dec"):
        compare("pgd", labels, *case, davylamp.ThreatModel("linf", 0.1))
    made = compare("boundary", labels, *case, davylamp.ThreatModel("l2"), parameters={"max_queries": 60})
    assert all(row.result is not None for row in made.rows)
    with pytest.raises(Unsupported, match=r"^adaptive attacks need a model with gradients.*Ending returns labels only"):
        challenge(labels, images(digits, 4), out=tmp_path / "c", norm="linf", epsilon=0.1)
