"""At 80 columns, the default output of a command fits a page and starts with the answer: the numbers of its JSON."""

import json
import math
import re
import sys

import pytest

from davylamp import cli
from davylamp.engine.statistics.verdict import PairVerdict
from davylamp.intervals import Interval
from davylamp.report.text.comparison import verdict_groups

from ..golden.corpus import copy_inputs, unpack

pytestmark = pytest.mark.usefixtures("few_draws")
LONGEST, WIDTH, FIRST = 40, 80, 10
ASK = "--model models.py:cnn --data npz:images.npz --epsilon 0.15"
FOLDERS = ("plain", "invalid", "defence", "random", "targeted", "transfer", "measures")
READING = ("table", "table --by models", "table --by pairs", "rank --method mean", "check", "status", "curves")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Models, images and golden folders."""
    folder = tmp_path_factory.mktemp("answers")
    copy_inputs(folder)
    for name in FOLDERS:
        unpack(name, folder)
    return folder


@pytest.fixture
def screen(place, capsys, monkeypatch):
    """Run a command as a user with 80 columns: its lines, without those on standard error."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", str(WIDTH))

    def run(line, *, code=0):
        monkeypatch.setattr(sys, "argv", ["davylamp", *line.split()])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        out, err = capsys.readouterr()
        assert (stop.value.code or 0) == code, err
        return out.splitlines()

    return run


def check(lines):
    """The first ten lines as one text, of an output that fits."""
    assert 0 < len(lines) <= LONGEST, "\n".join(lines)
    assert max(map(len, lines)) <= WIDTH, max(lines, key=len)
    return " ".join(" ".join(lines[:FIRST]).split())


def test_a_comparison(screen):
    compare = f"compare pgd {ASK} --defaults --limit 6"
    answer = check(screen(compare))
    document = json.loads("\n".join(screen(f"{compare} --json")))
    shares = [row["MR"] for row in document["rows"]]
    assert {float(f"{share:.3g}") for share in (min(shares), max(shares))} <= numbers(answer)
    assert f"proportion of {document['rows'][0]['images']} images that are fooled" in answer
    assert {pair["verdict"] for pair in document["pairs"]} == verdicts(answer, document["pairs"])
    assert len(screen(f"{compare} -v")) > LONGEST


def verdicts(answer, pairs):
    return {pair["verdict"] for pair in pairs if f"{pair['verdict']}" in answer}


def numbers(text):
    return {float(each) for each in re.findall(r"(?<![\w.])\d+(?:\.\d+)?", text)}


def test_an_evaluation(screen):
    models = "--models models.py:cnn,models.py:mlp --data npz:images.npz --epsilon 0.15 --norm linf"
    answer = check(screen(f"evaluate {models} --attacks pgd,fgsm --library foolbox,torchattacks --param steps=5 -o E"))
    rows = json.loads("\n".join(screen("table E --by models --metric CA,RA --json")))["rows"]
    for row in rows:
        for metric, name in (("CA", "clean accuracy"), ("RA", "robust accuracy")):
            value = row["metrics"][metric]["value"]
            (line,) = re.findall(rf"{row['model']}, linf 0.15: .*?{name} ([\d.]+)", answer)
            assert float(line) == pytest.approx(value, abs=5e-4)
    assert answer.count("most fooled by") == len(rows)


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("command", READING)
def test_what_reads_a_folder(screen, command, folder):
    name, *options = command.split()
    if name == "rank" and folder in ("invalid", "transfer", "searches", "measures"):
        pytest.skip("its models met nothing in common, or it has one")
    answer = check(screen(" ".join((name, folder, *options))))
    assert numbers(answer)


def test_the_numbers_of_a_table_and_of_a_ranking(screen):
    lines = screen("table defence --by models")
    rows = json.loads("\n".join(screen("table defence --by models --json")))["rows"]
    for metric in ("CA", "RA"):
        assert {float(f"{row['metrics'][metric]['value']:.3g}") for row in rows} <= numbers(" ".join(lines))
    assert float(f"{rows[-1]['metrics']['RA']['value']:.3g}") in numbers(" ".join(lines))
    check(lines)
    answer = check(screen("rank plain"))
    ranking = json.loads("\n".join(screen("rank plain --json")))
    first = ranking["rows"][0]
    assert f"rank 1: {first['subject']}" in answer
    assert round(first["score"], 2) in numbers(answer)
    counts = json.loads("\n".join(screen("check invalid --json")))["counts"]
    answer = check(screen("check invalid"))
    assert all(re.search(rf"\b{count} {state}\b", answer) for state, count in counts.items())


def test_a_column_that_was_asked_for_is_never_hidden(screen):
    text = "\n".join(screen("table plain --metric MR,AMD,QNC_F,QNC_B"))
    heads = {word for line in text.splitlines() if line.startswith("implementation") for word in line.split()}
    assert {"MR", "AMD", "QNC_F", "QNC_B"} <= heads
    text = " ".join(screen("status plain --columns seed,cell"))
    assert "seed" in text
    assert "not shown" not in text


def test_a_challenge_a_contract_and_the_robust_accuracy(screen):
    model = "models.py:cnn+art:bit-depth:bits=2 --data npz:images.npz --epsilon 0.1 --limit 4"
    lines = screen(f"challenge {model} --quick --steps 3 --queries 20 -o C")
    assert any("page: C/challenge.html" in line for line in lines)
    check(lines)
    assert any("worst-case accuracy" in line for line in lines)
    answer = check(screen("contract foolbox:fgsm"))
    promises = json.loads("\n".join(screen("contract foolbox:fgsm --json")))
    assert f"0 failed, {sum(each['state'] == 'passed' for each in promises)} passed" in answer
    answer = check(screen("robust-accuracy models.py:cnn --data npz:images.npz --epsilon 0.5 --limit 2"))
    assert "robust accuracy" in answer


class Pair:
    """As much of a pair as is grouped."""

    def __init__(self, a, b, verdict, weaker="", costs="", effect=(0.0, 0.0)):
        text = f"{verdict}: {weaker}" if weaker else verdict
        self.a, self.b, self.verdict, self.weaker, self.contenders = a, b, verdict, weaker, ()
        self.judgement = type("Judgement", (), {"text": text, "costs": costs, "effect": effect})


class Row:
    """A row with a name."""

    def __init__(self, library):
        self.implementation = type("I", (), {"library": library, "attack": "pgd", "name": f"{library}:pgd"})


@pytest.mark.parametrize(
    ("pairs", "lines"),
    [
        (
            [("a", "b", "identical"), ("a", "c", "identical"), ("b", "c", "identical")],
            ["identical: a, b, c"],
        ),
        (
            [("a", "b", "identical"), ("a", "c", "weaker", "c"), ("b", "c", "weaker", "c", "with 2 times the queries")],
            ["weaker: c than a; c than b (with 2 times the queries)", "identical: a, b"],
        ),
        (
            [("a", "b", "equivalent"), ("a", "c", "equivalent"), ("b", "c", "no difference found")],
            ["equivalent: a / b, c", "no difference found: b, c"],
        ),
        ([("a", "b", "broken", "a and b"), ("a", "c", "broken", "a"), ("b", "c", "broken", "b")], ["broken: a, b"]),
    ],
)
def test_groups_hold_every_pair_and_no_other(pairs, lines):
    def full(text):
        return " and ".join(f"{each}:pgd" for each in text.split(" and ")) if text else ""

    made = [Pair(f"{a}:pgd", f"{b}:pgd", verdict, full("".join(more[:1])), *more[1:]) for a, b, verdict, *more in pairs]
    comparison = type("C", (), {"rows": [Row(each) for each in "abc"], "pairs": made, "pairs_that_ran": made})
    assert verdict_groups(comparison) == lines


def test_one_of_identical_implementations_stands_for_them_where_all_have_the_verdict():
    pairs = [Pair("a", "b", "identical"), Pair("a", "c", "close"), Pair("b", "c", "close"), Pair("a", "d", "close")]
    comparison = type("Comparison", (), {"rows": [], "pairs_that_ran": [*pairs, Pair("b", "d", "far")]})
    assert verdict_groups(comparison) == ["close: a / c, d", "far: b, d", "identical: a, b"]


def test_the_largest_differences_come_first_and_a_short_answer_counts_the_others():
    def pair(a, b, rate, distance=math.nan):
        difference, ratio = Interval(rate, 0, 0), Interval(distance, 0, 0)
        effect = PairVerdict("weaker", difference=difference, ratio=ratio).effect
        return Pair(a, b, "weaker", b, f"{b}'s costs with {a}", effect)

    made = [
        pair("a", "b", 0.1),
        pair("a", "c", -0.4),
        pair("a", "d", 0.0, 0.5),
        pair("b", "c", 0.2),
        pair("b", "d", 0.0),
    ]
    comparison = type("C", (), {"rows": [Row(each) for each in "abcd"], "pairs": made, "pairs_that_ran": made})
    (whole,) = verdict_groups(comparison)
    names = [clause.partition(" (")[0] for clause in whole.removeprefix("weaker: ").split("; ")]
    assert names == ["c than a", "c than b", "b than a", "d than a", "d than b"]
    (short,) = verdict_groups(comparison, "(-v)")
    assert short == (
        "weaker: c than a (c's costs with a) and 1 other; b than a (b's costs with a); "
        "d than a (d's costs with a) and 1 other (-v)"
    )
