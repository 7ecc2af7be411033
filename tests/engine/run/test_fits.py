"""Evaluations of attacks that learn once: from images that are not scored, kept in the folder, applied to any model."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

import davylamp
from davylamp.adapters import run_attack
from davylamp.adapters.data.datasets import Data
from davylamp.adapters.libraries.davylamp.advgan import apply_advgan
from davylamp.adapters.running.fit import fit_attack
from davylamp.engine import AttackChoice, Config, ResultsStore, build_table, evaluate, load, make_plan
from davylamp.engine.attack_run import AttackRun
from davylamp.engine.checks.check_folder import check_folder
from davylamp.engine.plan.rerun import configs_of
from davylamp.engine.run.processes import WorkerPoolExecutor
from davylamp.engine.store.other_records import fitted_of, load_fitted
from davylamp.errors import InvalidInput
from davylamp.report.page.build import build_report

from ..conftest import Interrupted

UAP = (AttackChoice("art:uap", "linf", 0.1, parameters={"steps": 1}),)


def config(**changes):
    whole = Config(("net.py:one",), UAP, "net.py:images", measures=("effect", "cost"), shard_size=4)
    return replace(whole, fit_data="net.py:more", fit_limit=5, **changes)


def numbers(folder):
    frame = load(folder)
    return frame.drop(columns=["seconds", "fit_seconds"]).to_json()


def test_it_learns_from_images_that_are_not_scored_and_what_it_learned_is_kept(files):
    plan = make_plan(config(keep_images=True))
    summary = evaluate(plan, ResultsStore("r"))
    assert summary.failed == {}
    [cell] = plan.cells
    assert cell.shards == 3
    assert AttackRun.from_spec(cell.spec) == cell
    inputs, labels, _ = davylamp.load_data("net.py:more")
    classifier = davylamp.load_model("net.py:one")
    expected = fit_attack("art:uap", classifier, inputs[9:14], labels[9:14], cell.threat_model, steps=1)
    [(key, kept)] = load_fitted("r").items()
    assert key == cell.fit_key
    assert np.array_equal(kept.arrays["perturbation"], expected.arrays["perturbation"])
    assert (kept.digest, kept.images) == (expected.digest, expected.images)
    record = ResultsStore("r").read("cells", cell.key)
    assert record.meta["fit"]["digest"] == kept.digest
    frame = load("r")
    scored = davylamp.load_data("net.py:images")
    examples = (scored.inputs + torch.from_numpy(kept.arrays["perturbation"])).clamp(0, 1)
    wrong = (classifier(examples).argmax(1) != scored.labels).numpy()
    assert (frame["success"] == (frame["attacked"] & wrong)).all()
    assert not frame[["forwards", "backwards"]].any(axis=None)
    assert {*frame["fit_forwards"]} == {expected.forwards}
    assert {*frame["fit_backwards"]} == {expected.backwards}


AIMED = AttackChoice("art:targeted-uap", "l2", 2.0, target="1", parameters={"steps": 3, "step_size": 2.0})


def test_a_targeted_one_is_fitted_for_its_class_and_what_it_learned_is_kept(files):
    plan = make_plan(config(attacks=(AIMED,)))
    assert evaluate(plan, ResultsStore("r")).failed == {}
    [cell] = plan.cells
    [(key, kept)] = load_fitted("r").items()
    assert (key, kept.target) == (cell.fit_key, 1)
    inputs, labels, _ = davylamp.load_data("net.py:more")
    classifier, words = davylamp.load_model("net.py:one"), {"steps": 3, "step_size": 2.0}
    expected = fit_attack(
        "art:targeted-uap", classifier, inputs[9:14], labels[9:14], cell.threat_model, target=1, **words
    )
    assert expected.digest == kept.digest
    assert kept.arrays["perturbation"].any()
    frame, scored = load("r"), davylamp.load_data("net.py:images")
    examples = (scored.inputs + torch.from_numpy(kept.arrays["perturbation"])).clamp(0, 1)
    led = ((classifier(examples).argmax(1) == 1) & (scored.labels != 1)).numpy()
    assert led.any()
    assert (frame["success"] == (frame["attacked"] & led)).all()
    other = make_plan(config(attacks=(replace(AIMED, target="2"),)))
    assert other.cells[0].fit_key != cell.fit_key


def test_without_data_to_fit_on_its_cells_are_what_they_were_and_say_so(files):
    plan = make_plan(replace(config(), fit_data="", fit_limit=None))
    [cell] = plan.cells
    assert "fitted_on" not in cell.spec
    assert cell.shards == 1
    assert cell.fit_key == ""
    assert cell.title == "art:uap fitted on the evaluation images"
    evaluate(plan, ResultsStore("r"))
    evaluate(make_plan(config()), ResultsStore("r"))
    names = ["art:uap fitted on net.py:more (5)", "art:uap fitted on the evaluation images"]
    frame = build_table("r", metrics=["MR", "forwards", "fit_forwards"], bootstrap=0).to_frame()
    frame = frame.set_index("implementation")
    assert sorted(frame.index) == names
    assert frame.loc[names[0], "forwards"] == 0 < frame.loc[names[0], "fit_forwards"]
    assert frame.loc[names[1], "forwards"] > 0
    assert np.isnan(frame.loc[names[1], "fit_forwards"])
    page = build_report("r")
    assert all(name in page for name in (*names, "Fitted before the evaluation"))
    assert any("fitted on other images" in check.detail for check in check_folder("r"))
    again = [cell.key for each in configs_of(plan.cells) for cell in make_plan(each).cells]
    assert again == [cell.key]
    fitted = make_plan(config()).cells
    assert [cell.key for each in configs_of(fitted) for cell in make_plan(each).cells] == [cell.key for cell in fitted]


def test_made_on_one_model_it_is_scored_on_others_and_learned_once(files):
    plan = make_plan(config(models=("net.py:one", "net.py:two"), surrogate=("net.py:three",)))
    alone = make_plan(config(models=("net.py:three",)))
    assert {cell.fit_key for cell in (*plan.cells, *alone.cells)} == {plan.cells[0].fit_key}
    evaluate(plan, ResultsStore("r"))
    evaluate(alone, ResultsStore("r"))
    kept = load_fitted("r")
    assert len(kept) == 1
    assert {*load("r")["implementation"]} == {
        "art:uap via net.py:three fitted on net.py:more (5)", "art:uap fitted on net.py:more (5)"
    }  # fmt: skip
    white = config(models=("net.py:three", "net.py:one"), transfer="simple")
    assert evaluate(make_plan(white), ResultsStore("s")).failed == {}
    assert len(list(ResultsStore("s").keys("transfer"))) == 2


def test_interrupted_resumed_and_in_a_worker_the_records_are_the_same(files):
    plan = make_plan(config())
    evaluate(plan, ResultsStore("whole"))
    for tasks in (1, 0, 2):  # after the clean predictions; before what was learned is kept; within the attack
        with pytest.raises(KeyboardInterrupt):
            evaluate(plan, ResultsStore("cut"), executor=Interrupted(tasks))
    before = load_fitted("cut")
    assert len(before) == 1
    assert evaluate(make_plan(config()), ResultsStore("cut")).failed == {}
    evaluate(make_plan(config()), ResultsStore("crowd"), executor=WorkerPoolExecutor(2))
    assert numbers("whole") == numbers("cut") == numbers("crowd")


def test_an_attack_that_learns_nothing_fails_with_the_reason_and_can_be_tried_again(files, monkeypatch):
    from art.attacks.evasion import UniversalPerturbation

    with monkeypatch.context() as patch:
        patch.setattr(UniversalPerturbation, "generate", lambda *_, **__: 1 / 0)
        summary = evaluate(make_plan(config()), ResultsStore("r"))
    [reason] = summary.failed.values()
    assert "the attack could not be fitted" in reason
    assert "ZeroDivisionError" in reason
    assert load_fitted("r") == {}
    assert evaluate(make_plan(config()), ResultsStore("r")).kept == 1
    assert evaluate(make_plan(config()), ResultsStore("r"), retry_failed=True).failed == {}


def test_a_record_with_other_numbers_is_not_what_was_learned(files):
    evaluate(make_plan(config()), ResultsStore("r"))
    store = ResultsStore("r")
    [key] = store.keys("fits")
    record = store.read("fits", key)
    values = record.table["value"].to_numpy() * 2
    from davylamp.engine.store.checksummed import DamagedRecordError, Record

    forged = Record(pa.table({"array": record.table["array"], "value": values}), record.meta)
    with pytest.raises(DamagedRecordError, match="digest"):
        fitted_of(forged)


def test_images_to_fit_on_are_there_or_it_is_one_line(files):
    plan = make_plan(config(models=("net.py:one",)))
    assert plan.cells[0].fitted_on is not None
    assert plan.cells[0].fitted_on.images == 5
    wrong = [({"fit_data": "net.py:images"}, "has no others")]
    wrong += [({"attacks": (AttackChoice("foolbox:fgsm"),)}, "fitted attack such as uap")]
    wrong += [({"fit_data": ""}, "needs `fit_data`")]
    for target in ("", "random", "second-likely"):
        wrong.append(({"attacks": (replace(AIMED, target=target),)}, "art:targeted-uap .* one class"))
    for each, named in wrong:
        with pytest.raises(InvalidInput, match=named):
            make_plan(replace(config(), **each))
    other = Data(torch.rand(3, 3, 5, 5), torch.zeros(3, dtype=torch.long), ["a", "b", "c"])
    with pytest.raises(InvalidInput, match="fit images with the shape"):
        make_plan(config(), fit_data=other)


def test_from_python_and_without_images_at_all(files, digits):
    free = davylamp.evaluate(
        {"cnn": digits.module}, digits.inputs, digits.labels, attacks="gd-uap", epsilon=0.2, norm="linf", limit=6,
        parameters={"steps": 5}, out="free",
    )  # fmt: skip
    assert {*free.to_frame()["implementation"]} == {"davylamp:gd-uap"}
    assert {*free.to_frame()["fit_forwards"]} == {5}
    seen = davylamp.evaluate(
        {"cnn": digits.module}, digits.inputs[:6], digits.labels[:6], attacks="art:uap", epsilon=0.2, norm="linf",
        parameters={"steps": 1}, fit_data=(digits.inputs[4:], digits.labels[4:]), fit_limit=4, out="given",
    )  # fmt: skip
    assert {*seen.to_frame()["implementation"]} == {"art:uap fitted on given to fit on (4)"}
    [kept] = load_fitted("given").values()
    expected = fit_attack(
        "art:uap", digits.classifier, digits.inputs[6:10], digits.labels[6:10], kept.threat_model, steps=1
    )
    assert kept.digest == expected.digest


def test_an_attack_that_asks_with_what_it_learned_knows_what_it_was_given(files):
    """TREMBA learned on a surrogate asks the model for scores; learned on the model it has seen its gradients."""
    choice = AttackChoice("davylamp:tremba", "linf", 0.1, parameters={"steps": 2, "samples": 4, "epochs": 2})
    apart = make_plan(config(attacks=(choice,), surrogate=("net.py:three",)))
    alone = make_plan(config(attacks=(choice,)))
    blind = make_plan(replace(config(attacks=(choice,)), fit_data="", fit_limit=None))
    titles = [
        "davylamp:tremba via net.py:three fitted on net.py:more (5)",
        "davylamp:tremba fitted on net.py:more (5)",
        "davylamp:tremba fitted on the evaluation images",
    ]
    assert [plan.cells[0].title for plan in (apart, alone, blind)] == titles
    assert [plan.cells[0].knowledge for plan in (apart, alone, blind)] == ["score-based", "white-box", "white-box"]
    for plan in (apart, alone, blind):
        assert evaluate(plan, ResultsStore("r")).failed == {}
        assert [cell.key for each in configs_of(plan.cells) for cell in make_plan(each).cells] == [plan.cells[0].key]
    frame = load("r").set_index("implementation")
    assert (frame.loc[titles[0], "forwards"][frame.loc[titles[0], "attacked"].to_numpy()] >= 1).all()
    assert {*frame["fit_forwards"]} == {2.0 * fit.images for fit in load_fitted("r").values()}
    assert frame.loc[titles[0], "AAW"].isna().all()
    assert frame.loc[titles[1], "AAB"].isna().all()
    classifier, surrogate = davylamp.load_model("net.py:one"), davylamp.load_model("net.py:three")
    inputs, labels, _ = davylamp.load_data("net.py:more")
    rules = apart.cells[0].threat_model
    fitted = fit_attack("davylamp:tremba", surrogate, inputs[9:14], labels[9:14], rules, **choice.parameters)
    scored = davylamp.load_data("net.py:images")
    case = classifier, scored.inputs[:4], scored.labels[:4], rules
    by_hand = run_attack("davylamp:tremba", *case, fitted=fitted, steps=2, samples=4)
    assert frame.loc[titles[0], "forwards"].tolist()[:4] == by_hand.forwards.tolist()
    assert frame.loc[titles[0], "distance"].tolist()[:4] == pytest.approx(
        by_hand.distance.where(by_hand.success, torch.inf).where(by_hand.attacked, 0.0).tolist()
    )
    assert "davylamp:tremba via net.py:three" in build_report("r")


def test_a_generator_is_kept_and_applied_as_it_was_learned(files):
    choice = AttackChoice("davylamp:advgan", "linf", 0.1, parameters={"epochs": 2})
    evaluate(make_plan(config(attacks=(choice,))), ResultsStore("r"))
    [kept] = load_fitted("r").values()
    scored = davylamp.load_data("net.py:images")
    weights = {name: torch.from_numpy(array) for name, array in kept.arrays.items()}
    examples = apply_advgan(weights, scored.inputs, kept.threat_model)
    wrong = (davylamp.load_model("net.py:one")(examples).argmax(1) != scored.labels).numpy()
    frame = load("r")
    assert (frame["success"] == (frame["attacked"] & wrong)).all()
    assert not frame[["forwards", "backwards"]].any(axis=None)
    assert kept.forwards == kept.backwards == 2 * kept.images
