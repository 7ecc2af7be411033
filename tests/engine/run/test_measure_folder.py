"""Metrics that are measured later are those of an evaluation that measured them at once, bit by bit."""

import shutil

import numpy as np
import pytest
import torch

import davylamp
from davylamp.api.baseline_placement import read_baseline
from davylamp.engine import ResultsStore
from davylamp.engine.cell_defaults import ALL_MEASURES, MEASURES
from davylamp.engine.plan.rerun import configs_of
from davylamp.engine.run import measure_folder
from davylamp.engine.store.results import read_outcomes
from davylamp.errors import InvalidInput, UnknownName
from davylamp.metrics import METRICS
from davylamp.report.page.build import build_report

from ...golden import corpus

MODEL = "models.py:cnn"
PGD = {"attacks": ["foolbox:pgd"], "epsilon": 0.15, "steps": 5}
FEW, MORE = ("effect",), ("effect", "attention", "cost", "distance", "frequency", "perceptual", "confusion")
USERS = "measures.py:largest_change"
NET = """
import torch
from torchvision.models import squeezenet1_1

def net():
    torch.manual_seed(0)
    return squeezenet1_1(num_classes=4).eval()
"""
MAPS = {"models": ["net.py:net"], "data": "npz:maps.npz", "libraries": ["foolbox"]}  # a model with activation maps
CASES = {
    "plain": {"attacks": ["foolbox:pgd", "foolbox:ddn", "torchattacks:fgsm"]},
    "maps": {**PGD, **MAPS},
    "maps of a random defence": {**PGD, **MAPS, "defences": ["torchvision:noise"], "judge_samples": 4},
    "random": {**PGD, "models": ["models.py:noisy"], "judge_samples": 8},
    "targeted": {**PGD, "target": "random"},
    "defence": {**PGD, "defences": ["art:bit-depth:bits=2", "torchvision:noise"]},
    "labels only": {"models": ["models.py:labels"], "attacks": ["foolbox:salt-and-pepper"], "steps": 10},
    "invalid": {"attacks": ["attacks.py:returns_nan", "attacks.py:too_far"], "norm": "linf", "epsilon": 0.15},
    "not finite": {**PGD, "models": ["models.py:unsure"]},
    "two classes": {**PGD, "models": ["models.py:two"], "data": "npz:binary.npz"},
    "searches": {"attacks": ["best(foolbox:pgd)", "at-saturation(torchattacks:fgsm)"], "limit": 12},
    "worst case": {"attacks": ["foolbox:fgsm", "torchattacks:pgd"], "epsilon": 0.15, "stop_when_fooled": True},
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with models and images; the working folder."""
    corpus.copy_inputs(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    inputs = torch.rand(10, 3, 48, 48, generator=torch.Generator().manual_seed(1))
    made: dict = {}
    exec(NET, made)
    np.savez(tmp_path / "maps.npz", inputs=inputs.numpy(), labels=made["net"]()(inputs).argmax(1).numpy())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def evaluate(out, measures, **settings):
    given = {"models": [MODEL], "data": "npz:images.npz", "shard_size": 7, "keep_images": True, "progress": False}
    return davylamp.evaluate(out=out, measures=measures, **{**given, **settings})


def records(folder):
    """The records of a folder, by what was run on which model."""
    store = ResultsStore(folder)
    found = (store.read("cells", key) for key in store.keys("cells"))
    return {(r.meta["spec"]["attack"], r.meta["spec"]["subject"]["model"]): r for r in found}


def bits(column):
    """A column as bytes, or as text if it is not of numbers."""
    if column.null_count or str(column.type).startswith(("list", "fixed", "string", "binary")):
        return repr(column.to_pylist())
    return column.to_numpy().tobytes()


def differing(one, other):
    """The names of what differs between two records: columns, their order, reasons."""
    assert one.table.schema == other.table.schema
    names = [name for name in one.table.column_names if name != "seconds"]
    found = [name for name in names if bits(one.table[name]) != bits(other.table[name])]
    return found + [name for name in ("unmeasured", "status") if one.meta[name] != other.meta[name]]


@pytest.mark.parametrize("case", CASES)
def test_measured_later_is_measured_at_once_bit_by_bit(place, case):
    evaluate("whole", (*MORE, USERS, "neurons"), **CASES[case])
    evaluate("later", FEW, **CASES[case])
    before = records("later")
    done = davylamp.measure("later", ["all", USERS, "neurons"])
    assert {row["state"] for row in done.rows} == {"measured"}, done
    whole, later = records("whole"), records("later")
    assert whole.keys() == later.keys()
    for name, record in whole.items():
        assert differing(record, later[name]) == []
        assert len(before[name].table.column_names) < len(record.table.column_names)
        assert ("ACAMC_A" in record.table.column_names) == case.startswith("maps")
        assert later[name].meta["key"] == before[name].meta["key"]
    again = evaluate("later", FEW, **CASES[case])
    assert (again.summary.done, again.summary.kept) == (0, len(whole))
    assert {row["state"] for row in davylamp.measure("later", "all").rows} == {"kept"}


def test_a_table_reads_what_was_measured_later(place):
    evaluate("whole", MORE, **PGD, **MAPS)
    evaluate("later", FEW, **PGD, **MAPS)
    davylamp.measure("later", ["ASS", "ACAMC_A"])
    symbols = ["MR", "ACAMC_A"]
    whole, later = (davylamp.table(folder, metrics=symbols).rows[0].metrics for folder in ("whole", "later"))
    for symbol in symbols:
        assert whole[symbol] == later[symbol], symbol
        assert whole[symbol].n > 0


def test_drawn_images_and_workers(place):
    how = {**PGD, "limit": 20}
    evaluate("whole", MORE, until="RA >= 0.5", **how)
    evaluate("later", FEW, until="RA >= 0.5", workers=2, **how)
    davylamp.measure("later", "all")
    whole, later = ({r.meta["spec"]["subject"]["images"]: r for r in _all(folder)} for folder in ("whole", "later"))
    assert whole.keys() == later.keys()
    assert [differing(whole[n], later[n]) for n in whole] == [[]] * len(whole)


def _all(folder):
    store = ResultsStore(folder)
    return [store.read("cells", key) for key in store.keys("cells")]


def test_a_run_with_more_metrics_serves_the_parts_of_an_evaluation_with_fewer(place):
    evaluate("out", FEW, **PGD)
    davylamp.measure("out", "all")
    evaluate("wide", MORE, **PGD)
    for folder, measures in (("out", ("effect", "distance")), ("wide", FEW)):
        for part in ("1/2", "2/2", ""):
            again = evaluate(folder, measures, part=part, **PGD).summary
            assert (again.done, again.kept, again.unfinished) == (0, 1, 0)
        assert len(_all(folder)) == 1


@pytest.mark.parametrize("later", [False, True])
def test_a_sequence_goes_on_with_all_metrics_of_its_runs(place, later):
    how, few, all_images = {**PGD, "limit": 20}, "width <= 0.99", "width <= 0.001"
    evaluate("out", FEW if later else MORE, until=few, **how)
    if later:
        davylamp.measure("out", "all")
    (begun,) = _all("out")
    again = evaluate("out", FEW, until=few, **how)
    assert (again.summary.done, again.summary.kept) == (0, 1)
    done = evaluate("out", FEW, until=all_images, **how)
    evaluate("whole", MORE, until=all_images, **how)
    (whole,), (record,) = _all("whole"), _all("out")
    assert begun.table.num_rows < record.table.num_rows == 20
    assert differing(whole, record) == []
    assert (done.summary.done, "added" in record.meta) == (1, False)
    assert evaluate("out", FEW, until=all_images, **how).summary.done == 0


def test_runs_are_repeated_with_the_metrics_that_were_added(place):
    evaluate("out", FEW, models=[MODEL, "models.py:mlp"], **PGD)
    davylamp.measure("out", "all", model="models.py:mlp")
    measured = {cell.subject.model: cell for cell in (each.cell for each in read_outcomes("out").done)}
    (config,) = configs_of([measured["models.py:mlp"]])
    assert {*config.measures} == {*MORE}
    assert read_baseline("out").config.measures == FEW  # all of its models have these
    davylamp.measure("out", "FDL")
    assert read_baseline("out").config.measures == ("effect", "frequency")


def test_without_examples_only_what_needs_none_is_measured(place):
    evaluate("whole", MORE, **PGD)
    evaluate("later", FEW, **PGD, keep_images=False)
    with pytest.raises(InvalidInput, match="keep_images"):
        davylamp.measure("later", "perceptual")
    (before,) = (record.table.column_names for record in _all("later"))
    davylamp.measure("later", "cost")
    (later,), (whole,) = _all("later"), _all("whole")
    new = {*later.table.column_names} - {*before}
    assert new == {"QNC_F", "QNC_B"}
    assert all(bits(later.table[name]) == bits(whole.table[name]) for name in new)


def test_a_model_is_needed_by_attention_alone(place):
    evaluate("whole", MORE, **PGD)
    evaluate("later", FEW, **PGD)
    text = (place / "models.py").read_text()
    (place / "models.py").write_text(
        text.replace("nn.ReLU(),\n        nn.Flatten()", "nn.ELU(),\n        nn.Flatten()")
    )
    with pytest.raises(InvalidInput, match="differs from the evaluated model"):
        davylamp.measure("later", "attention")
    davylamp.measure("later", "perceptual")
    (place / "models.py").unlink()
    with pytest.raises(InvalidInput, match=r"models\.py"):
        davylamp.measure("later", "attention")
    davylamp.measure("later", "frequency")
    (later,), (whole,) = _all("later"), _all("whole")
    for name in ("ALMS", "ASS", "FDL", "FDH"):
        assert bits(later.table[name]) == bits(whole.table[name])
    (place / "models.py").write_text(text)
    assert davylamp.measure("later", "attention").rows[0]["state"] == "measured"


def test_examples_of_another_run_are_refused(place):
    evaluate("later", FEW, **PGD)
    store = ResultsStore("later")
    (key,) = store.keys("cells")
    arrays = dict(np.load(store.images_path(f"{key}-0")))
    store.write_images(f"{key}-0", {**arrays, "inputs": arrays["inputs"][::-1]})
    with pytest.raises(InvalidInput, match="distances"):
        davylamp.measure("later", "perceptual")


def test_a_copy_without_the_metrics_never_replaces_one_with_them(place):
    evaluate("later", FEW, **PGD)
    shutil.copytree("later", "copy")
    davylamp.measure("later", "all")
    (measured,) = _all("later")
    for one, other in (("later", "copy"), ("copy", "later")):
        corpus.run(f"merge {one} {other} -o {one}-merged")
        (merged,) = _all(f"{one}-merged")
        assert differing(measured, merged) == []
        assert {row["state"] for row in davylamp.measure(f"{one}-merged", "all").rows} == {"kept"}


def test_a_kill_leaves_each_record_as_it_was_or_as_it_will_be(place, monkeypatch):
    evaluate("later", FEW, attacks=["foolbox:pgd", "torchattacks:fgsm"], epsilon=0.15)
    before, calls, write = records("later"), [], ResultsStore.write

    def die(self, *arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        write(self, *arguments)

    monkeypatch.setattr(ResultsStore, "write", die)
    with pytest.raises(KeyboardInterrupt):
        davylamp.measure("later", "all")
    monkeypatch.undo()
    monkeypatch.chdir(place)
    halfway = records("later")
    same = [halfway[name].table.column_names == before[name].table.column_names for name in before]
    assert sorted(same) == [False, True]
    assert sorted(row["state"] for row in davylamp.measure("later", "all").rows) == ["kept", "measured"]


def test_what_cannot_be_asked_is_refused(place):
    evaluate("later", (*FEW, "consistency:versions=2"), **PGD)
    for name, error in (("curve", InvalidInput), ("nope", UnknownName), ("consistency:versions=3", InvalidInput)):
        with pytest.raises(error):
            davylamp.measure("later", name)
    with pytest.raises(InvalidInput):
        davylamp.measure("later", [])
    assert {row["state"] for row in davylamp.measure("later", "consistency:versions=2").rows} == {"kept"}


def test_modules_take_the_place_of_names(digits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {"attacks": ["foolbox:fgsm"], "progress": False, "keep_images": True}
    davylamp.evaluate({"mine": digits.module}, digits.inputs, digits.labels, out="later", measures=FEW, **given)
    davylamp.evaluate({"mine": digits.module}, digits.inputs, digits.labels, out="whole", measures=MORE, **given)
    with pytest.raises(InvalidInput):
        davylamp.measure("later", "all")
    pair = digits.inputs, digits.labels
    davylamp.measure("later", "all", model={"mine": digits.module}, data=pair)
    (later,), (whole,) = _all("later"), _all("whole")
    assert differing(whole, later) == []


def test_the_folder_is_locked_run_by_run(place):
    evaluate("later", FEW, **PGD)
    store = ResultsStore("later")
    (key,) = store.keys("cells")
    lock = store.claim(f"measures-{key}")
    with pytest.raises(InvalidInput, match="process"):
        davylamp.measure("later", "cost")
    store.release(f"measures-{key}", lock)
    assert davylamp.measure("later", "cost").rows[0]["state"] == "measured"
    assert measure_folder._settings("coverage:profile=d code 12") == "coverage:profile=d"


def test_the_default_groups_are_those_that_no_record_leaves_to_a_request():
    on_request = {record.group for record in METRICS.values() if record.group in record.needs}
    assert tuple(name for name in ALL_MEASURES if name not in on_request) == MEASURES
    assert MORE == ALL_MEASURES


def test_a_command_says_what_it_did_not_measure_and_adds_it(place):
    line = f"evaluate --models {MODEL} --data npz:images.npz --attacks foolbox:pgd --epsilon 0.15 --isolate no"
    assert corpus.run(f"{line} -o later --keep-images")[1].count("not measured: attention, perceptual") == 1
    (record,) = _all("later")
    assert record.meta["spec"]["measures"] == [*MEASURES]
    assert not {"ALMS", "ASS", "ACAMC_A"} & {*record.table.column_names}
    page = build_report("later")
    assert page.count("not measured: attention, perceptual") == 1
    assert corpus.run("measure later --metric ALMS")[0] == 0
    assert {"ALMS", "ASS"} <= {*_all("later")[0].table.column_names}
    code, out, _ = corpus.run(f"{line} -o later --keep-images --metric ALMS")
    assert (code, "0 runs done, 1 reused" in out, "not measured: attention;" in out) == (0, True, True)
    assert len(_all("later")) == 1
    assert corpus.run("measure later --metric all")[0] == 0
    assert "not measured" not in corpus.run(f"{line} -o later --keep-images --metrics all")[1]
    assert "not measured:" not in build_report("later")


def test_runs_with_more_metrics_are_reused_and_those_with_fewer_are_not(place):
    evaluate("later", MORE, **PGD)
    again = evaluate("later", MEASURES, **PGD)
    assert (again.summary.done, again.summary.kept) == (0, 1)
    assert len(again.plan.choices[_all("later")[0].meta["key"]]) == 1
    more = evaluate("later", (*MORE, "neurons"), **PGD)
    assert (more.summary.done, more.summary.kept) == (1, 0)
    outcomes = read_outcomes("later")
    assert [each.cell.measures for each in outcomes.done] == [(*MORE, "neurons")]
    assert len(outcomes.left_out) == 1
    other = evaluate("later", MEASURES, **{**PGD, "epsilon": 0.2})
    assert (other.summary.done, other.summary.kept) == (1, 0)
