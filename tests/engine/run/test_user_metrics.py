"""A user's own metric: from stored records or while evaluating, by today's code, never mixed with another's."""

import numpy as np
import pytest
import torch

import davylamp
from davylamp.engine import build_table, load
from davylamp.engine.user_metrics import find_metric
from davylamp.errors import InvalidInput, ModelFailed, Unavailable, UnknownName, Unsupported

FILE = '''
import torch


def confidence(adv_logits):
    """Largest probability of the example."""
    return adv_logits.softmax(1).amax(1)


def drop(logits, adv_logits, labels, success):
    before, after = (each.softmax(1).gather(1, labels[:, None])[:, 0] for each in (logits, adv_logits))
    return (before - after).where(success, torch.nan)


def brightness(inputs, adv_inputs):
    return (adv_inputs - inputs).flatten(1).mean(1)


def whole(adv_logits):
    return adv_logits.mean()


def strange(adv_logits, weather):
    return adv_logits[:, 0]


def fails(adv_logits):
    raise ValueError("no such thing")
'''


@pytest.fixture
def folder(tmp_path, monkeypatch, digits):
    (tmp_path / "my.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def evaluate(digits, **settings):
    case = (digits.module, digits.inputs, digits.labels)
    attacks = ["foolbox:pgd", "torchattacks:fgsm"]
    return davylamp.evaluate(*case, attacks=attacks, epsilon=0.1, out="results", keep_images=True, **settings)


def test_from_records_it_is_what_it_computes(folder, digits):
    evaluate(digits)
    table = build_table("results", metrics=["my.py:confidence", "my.py:drop"], bootstrap=0).to_frame()
    records = load("results", heavy=True)
    for row in table.itertuples(index=False):
        mine = records[(records["implementation"] == row.implementation) & records["attacked"] & records["usable"]]
        adv = torch.tensor(np.stack(mine["adv_logits"])).softmax(1)
        assert row[list(table.columns).index("my.py:confidence")] == pytest.approx(float(adv.amax(1).mean()), abs=1e-6)
        fooled = mine["success"].to_numpy()
        assert row[list(table.columns).index("my.py:drop n")] == fooled.sum()


def test_while_evaluating_it_is_stored_and_shown(folder, digits):
    evaluation = evaluate(digits, measures=["effect", "my.py:brightness", "my.py:confidence"])
    frame = evaluation.to_frame()
    result = davylamp.run_attack("torchattacks:fgsm", digits.module, digits.inputs, digits.labels, epsilon=0.1)
    stored = frame[frame["implementation"] == "torchattacks:fgsm"].sort_values("index")["my.py:brightness"].to_numpy()
    expected = (result.adv_inputs - digits.inputs).flatten(1).mean(1).double().numpy()
    assert np.allclose(stored, expected, atol=1e-7)
    table = evaluation.table()
    assert {"my.py:brightness", "my.py:confidence"} <= set(table.symbols)
    again = evaluation.table(metrics=["my.py:confidence"]).to_frame()["my.py:confidence"]
    assert np.allclose(again, table.to_frame()["my.py:confidence"])
    assert "my.py:brightness" in davylamp.report("results", "report.html").read_text()


def test_an_edit_is_another_metric(folder, digits):
    first = evaluate(digits, measures=["my.py:brightness"])
    assert first.summary.done == 2
    assert evaluate(digits, measures=["my.py:brightness"]).summary.done == 0
    before = first.table().to_frame()["my.py:brightness"]
    (folder / "my.py").write_text(
        FILE.replace("(adv_inputs - inputs).flatten(1)", "2 * (adv_inputs - inputs).flatten(1)")
    )
    assert evaluate(digits, measures=["my.py:brightness"]).summary.done == 2
    table = first.table().to_frame()
    assert len(table) == 4  # a row for each code, named in the setting
    assert table["setting"].str.contains("my.py:brightness code").all()
    today = first.table(metrics=["my.py:brightness"]).to_frame()["my.py:brightness"].dropna()
    assert np.allclose(sorted(today), sorted(2 * before))


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("my.py:confidense", UnknownName, "unknown metric in .*did you mean confidence"),
        ("absent.py:f", Unavailable, "expected a Python file with a metric"),
        ("my.py:strange", InvalidInput, "the argument weather of my.py:strange is not known"),
        ("my.py:torch", InvalidInput, "expected a function"),
    ],
)
def test_what_is_no_metric_gets_one_line(folder, name, kind, words):
    with pytest.raises(kind, match=words):
        find_metric(name)


def test_a_wrong_answer_or_an_error_is_named(folder, digits):
    evaluate(digits)
    with pytest.raises(Unsupported, match="needs inputs, adv_inputs"):
        build_table("results", metrics=["my.py:brightness"])
    with pytest.raises(InvalidInput, match=r"for each image, shape \(16,\), from my.py:whole, got .* of shape \(\)"):
        build_table("results", metrics=["my.py:whole"])
    with pytest.raises(ModelFailed, match=r"my\.py:fails raised ValueError: no such thing \(line \d+ of my\.py\)"):
        build_table("results", metrics=["my.py:fails"])
    evaluation = evaluate(digits, measures=["my.py:fails"])  # costs itself, not the evaluation
    assert not evaluation.summary.failed
    assert "no such thing" in evaluation.summary.unmeasured["my.py:fails"]
    assert evaluation.to_frame()["my.py:fails"].isna().all()


def test_on_the_command_line(folder, run, digits_files):
    attack = ("--attacks", "foolbox:fgsm", "--norm", "linf", "--epsilon", "0.1", "--data", "npz:images.npz")
    code, _, errors = run("evaluate", "--models", "net.py:build", *attack, "--metric", "my.py:brightness")
    assert code == 0, errors
    code, out, errors = run("table", "results", "--metric", "my.py:confidence", "--metric", "my.py:brightness")
    assert code == 0, errors
    assert "my.py:confidence" in out
    assert "my.py:brightness" in out


WRECKS = """
import torch


def wrecks(model, inputs):
    for parameter in model.parameters():
        parameter.data.zero_()
    model.train()
    return torch.ones(len(inputs))


def draws(adv_logits):
    return torch.rand(len(adv_logits))


def text(adv_logits):
    return ["one"] * len(adv_logits)


def imaginary(adv_logits):
    return adv_logits[:, 0] + 1j
"""


def test_a_metric_that_changes_the_model_has_no_value_and_leaves_no_trace(folder, digits):
    (folder / "bad.py").write_text(WRECKS)
    evaluate(digits, measures=("effect", "bad.py:wrecks"))
    records = load("results").copy()
    assert np.isnan(records["bad.py:wrecks"]).all()
    assert any(bool(parameter.any()) for parameter in digits.module.parameters())
    davylamp.evaluate(
        digits.module, digits.inputs, digits.labels, attacks=["foolbox:pgd", "torchattacks:fgsm"], epsilon=0.1, out="p"
    )
    assert list(records["MR"]) == list(load("p")["MR"])  # the second attack met the same model


def test_a_random_metric_is_the_same_each_time_and_what_is_no_number_is_named(folder, digits):
    (folder / "bad.py").write_text(WRECKS)
    evaluate(digits)
    first, second = (build_table("results", metrics=["bad.py:draws"], bootstrap=0).to_frame() for _ in range(2))
    assert first.equals(second)
    for name, got in (("text", "got list"), ("imaginary", "got torch.complex64")):
        with pytest.raises(InvalidInput, match=got):
            build_table("results", metrics=[f"bad.py:{name}"], bootstrap=0)
