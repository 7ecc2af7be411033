"""`davylamp metrics`: what it says is what the functions, the page and the other commands say."""

import json

import pytest

from davylamp.engine.metric_names import resolve_symbols
from davylamp.metrics import METRICS


def test_the_list_has_every_metric_and_fits_eighty_columns(run):
    code, out, err = run("metrics")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    words = " ".join(out.split())
    listed = out[: out.index("`davylamp metrics NAME`")].splitlines()
    assert [line.split()[0] for line in listed if line[0] != " "] == list(METRICS)
    for record in METRICS.values():
        assert record.meaning in words
        assert f"; {record.range}, {record.unit}" in words


@pytest.mark.parametrize("name", ["mr", "Misclassification ratio", "asr"])
def test_one_metric_whole_by_any_name(run, name):
    code, out, _ = run("metrics", name)
    assert code == 0
    assert out.startswith("MR: Misclassification ratio\n")
    for text in (
        "mean over valid of [F(xa) != y]",
        "lower is better for the model",
        "3.1.2",
        "table FOLDER --metric MR",
    ):
        assert text in " ".join(out.split())
    assert "valid: images with F(x) = y" in " ".join(out.split())


@pytest.mark.parametrize("symbol", [symbol for symbol, record in METRICS.items() if record.group == "recorded"])
def test_what_evaluations_record_is_a_metric_too(run, symbol):
    (known,) = json.loads(run("metrics", symbol.lower(), "--json")[1])
    rows = " --by models" if symbol in ("RA_mean", "RA_union") else ""
    assert known["shown_by"] == f"davylamp table FOLDER{rows} --metric {symbol}"
    assert known["meaning"] == METRICS[symbol].meaning


def test_as_json_a_family_is_its_metrics(run):
    code, out, _ = run("metrics", "QNC", "--json")
    records = json.loads(out)
    assert code == 0
    assert [record["symbol"] for record in records] == ["QNC_F", "QNC_B"]
    assert [record["between"] for record in records] == [[0, None]] * 2
    assert records[0]["also"] == ["QNC"]
    assert len(json.loads(run("metrics", "--json")[1])) == len(METRICS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("metrics", "ssmi"), "unknown metric 'ssmi'; did you mean ASS?"),
        (("metrics", "zzzz"), "unknown metric 'zzzz'; davylamp metrics lists them"),
        (
            ("evaluate", "--metric", "ca"),
            "--metric: CA is part of every evaluation and need not be chosen; show it with davylamp table FOLDER "
            "--metric CA",
        ),
        (
            ("evaluate", "--metric", "mce"),
            "--metric: mCE is measured by a different command: davylamp corruptions run MODELS",
        ),
    ],
)
def test_another_name_is_one_line_that_helps(run, arguments, message):
    more = () if arguments[0] == "metrics" else ("--attacks", "pgd", "--models", "none", "--data", "none", "-o", "out")
    code, out, err = run(*arguments, *more)
    assert (code, out, err) == (1, "", f"davylamp: {message}\n")


@pytest.mark.parametrize(("name", "also"), [("RA", []), ("robust accuracy", ["RA_mean", "RA_union"]), ("RA_worst", [])])
def test_robust_accuracy_is_the_worst_case(run, name, also):
    """The words of a title find every metric that has them in it."""
    known = json.loads(run("metrics", name, "--json")[1])
    assert [each["symbol"] for each in known] == ["RA", *also]
    assert known[0]["shown_by"] == "davylamp table FOLDER --by models --metric RA"


def test_names_with_a_parameter_and_beside_the_metrics():
    names = ["fr@10", "QI-Wup@0.5", "ra", "L2", "AND", "AMD", "mr@3", "my.py:f", "Nothing"]
    assert resolve_symbols(names) == (
        *("FR@10", "QI_Wup@0.5", "RA", "l2", "AMD", "AED", "APCR", "MR@3", "my.py:f", "Nothing"),
    )


# Table I of AISafety, its marks copied: the metrics of each row, and which of its columns are marked.
TABLE_1 = """
KMNCov NBCov SNACov | adversarial corruption whitebox single
ALD ASS PSD         | adversarial blackbox single
CA                  | behaviour blackbox single
AAW                 | behaviour adversarial whitebox blackbox single
AAB                 | behaviour adversarial blackbox multiple
ACAC ACTC NTE       | behaviour adversarial whitebox single
mCE                 | behaviour corruption blackbox single
RmCE mFR CAV        | behaviour corruption blackbox multiple
CRR CSR CCV COS     | behaviour adversarial corruption blackbox multiple
EBD NU              | adversarial corruption whitebox blackbox multiple
EBD2 NS             | adversarial corruption blackbox multiple
ENI                 | adversarial corruption whitebox single
"""
COLUMNS = {
    "behaviour": "behaviour",
    "adversarial": "adversarial attacks",
    "corruption": "corruptions",
    "whitebox": "white-box",
    "blackbox": "black-box",
    "single": "one model",
    "multiple": "several models",
}


def test_the_taxonomy_is_that_of_aisafetys_table_1(run):
    rows = [line.partition(" | ") for line in TABLE_1.strip().splitlines()]
    marks = {symbol: {*marked.split()} for symbols, _, marked in rows for symbol in symbols.split()}
    for known in json.loads(run("metrics", "--json")[1]):
        said = known["taxonomy"]
        assert bool(said) == (known["symbol"] in marks)
        if said:
            assert {name for name, words in COLUMNS.items() if words in said} == marks[known["symbol"]]
            about_data = known["symbol"].endswith("Cov") or known["symbol"] in ("ALD", "ASS", "PSD")
            assert said.startswith("data" if about_data else "model")
    assert "taxonomy model, structure; " in " ".join(run("metrics", "EBD")[1].split())


@pytest.mark.parametrize("name", ["NTE@all", "D_half@grey", "FDL@db4", "FR@10", "WITHIN@0-2"])
def test_a_name_with_a_parameter_or_a_reading_shows_its_metric(run, name):
    """The footer of every table refers to `davylamp metrics NAME` for these names."""
    code, out, _ = run("metrics", name, "--json")
    assert code == 0
    assert json.loads(out)[0]["symbol"].partition("@")[0] == name.partition("@")[0]
