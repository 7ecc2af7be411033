"""Evidence for standards and laws: a topic is measured where the folder has each kind of measurement that it needs."""

import json
import sys

import pytest

import davylamp
from davylamp import cli
from davylamp.engine.checks.evidence_topics import COMMANDS, DEMANDS, TITLES
from davylamp.errors import InvalidInput, UnknownName

from ...golden.corpus import unpack


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Golden folders: white-box, black-box and transfer attacks, corruptions, and a challenge."""
    folder = tmp_path_factory.mktemp("evidence")
    for name in ("plain", "queries", "transfer", "corruptions", "challenge"):
        unpack(name, folder)
    return folder


def results_of(result):
    return {each["measurement"]: each["result"] for each in result.document["measurements"]}


def states_of(result):
    return {(row["document"], row["place"], row["topic"]): row["state"] for row in result.rows}


def value_of(folder, model, symbol, **options):
    (row, *_) = [
        row
        for row in davylamp.table(folder, "models", metrics=[symbol], **options).rows
        if row.labels["model"] == model and (symbol == "CA" or row.labels["epsilon"] > 0)
    ]
    return row.metrics[symbol]


def test_each_topic_needs_known_measurements_of_a_known_document():
    assert {kind for each in DEMANDS for kind in each.needs} == set(COMMANDS)
    assert {each.document for each in DEMANDS} == set(TITLES)


def test_the_values_are_those_of_the_tables(place):
    found = results_of(davylamp.evidence(place / "transfer", model="models.py:cnn"))
    for kind, symbol, options in (
        ("accuracy", "CA", {}),
        ("white-box", "RA", {"knowledge": "white-box"}),
        ("transfer", "RA", {"knowledge": "transfer"}),
    ):
        value, low, high, n = value_of(place / "transfer", "models.py:cnn", symbol, **options)
        assert found[kind].startswith(f"{symbol} {value:.3g}"[:6])
        assert f"[{low:.2f}, {high:.2f}], n = {n}" in found[kind]
    assert found["black-box"] == found["corruptions"] == found["certificate"] == ""


def test_transfer_is_no_black_box_attack_and_the_smallest_change_no_radius(place):
    found = results_of(davylamp.evidence(place / "queries", model="models.py:cnn"))
    assert "linf 0.15" in found["black-box"]
    assert "smallest change" not in "".join(found.values())
    assert "l2" not in found["black-box"]  # the boundary attack has no radius


def test_states_follow_from_the_measurements(place):
    states = states_of(davylamp.evidence(place / "transfer", model="models.py:cnn"))
    by_place = {(document, where): state for (document, where, _), state in states.items()}
    assert by_place["NIST AI 100-2", "white-box evasion"] == "measured"
    assert by_place["NIST AI 100-2", "black-box evasion"] == "not measured"
    assert by_place["FDA draft", "cybersecurity"] in ("partly measured", "outside davylamp")
    assert states["FDA draft", "cybersecurity", "model evasion"] == "partly measured"
    assert by_place["MITRE ATLAS", "AML.T0020"] == "outside davylamp"
    assert by_place["AI Act", "Article 15(4)"] == "not measured"


def test_corruptions_and_challenges_count(place, tmp_path, monkeypatch):
    davylamp_merge = [
        "davylamp",
        "merge",
        *map(str, (place / "plain", place / "corruptions")),
        "-o",
        str(tmp_path / "m"),
    ]
    monkeypatch.setattr(sys, "argv", davylamp_merge)
    with pytest.raises(SystemExit):
        cli.main()
    result = davylamp.evidence(tmp_path / "m", model="models.py:large")
    assert results_of(result)["corruptions"].startswith("mCE 0.25 [")
    assert results_of(result)["white-box"] == ""
    states = states_of(result)
    assert {state for (document, where, _), state in states.items() if where == "Article 15(4)"} == {"measured"}
    defended = "models.py:cnn+art:bit-depth:bits=2"
    assert results_of(davylamp.evidence(place / "challenge", model=defended))["adaptive"] != ""


def test_a_model_has_to_be_chosen(place):
    with pytest.raises(InvalidInput):
        davylamp.evidence(place / "plain")
    with pytest.raises(UnknownName):
        davylamp.evidence(place / "plain", model="models.py:cmm")


def test_the_pages_and_the_command_have_the_same_rows(place, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(place)
    for out in ("e.md", "e.html"):
        monkeypatch.setattr(sys, "argv", ["davylamp", *f"evidence plain --model models.py:cnn -o {out} --json".split()])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert not stop.value.code
        document = json.loads(capsys.readouterr().out)
        page = (place / out).read_text(encoding="utf-8")
        assert all(
            row["topic"].replace("'", "&#39;" if out.endswith("html") else "'") in page for row in document["topics"]
        )
        assert "complian" not in page + json.dumps(document)
    assert document == json.loads(json.dumps(davylamp.evidence("plain", model="models.py:cnn").to_dict()))
    monkeypatch.setattr(sys, "argv", ["davylamp", *["evidence", "plain", "--model", "models.py:cnn", "-o", "e.txt"]])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 1
