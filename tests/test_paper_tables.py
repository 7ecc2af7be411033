"""Rows of papers' tables: where they come from, what stands beside what, and what is refused in one line."""

import json
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from davylamp.adapters import Classifier, ThreatModel, implementations_of, run_attack
from davylamp.adapters.data.datasets import Data
from davylamp.benchmarks import Options, PaperTable, reproductions
from davylamp.benchmarks.reproductions import PAPERS, collect_tables, find_table, list_tables
from davylamp.benchmarks.shared.paper_numbers import find_beside, load_published
from davylamp.engine import AttackChoice, Config, make_plan
from davylamp.errors import InvalidInput, Unavailable, UnknownName

PGD = {"attack": "foolbox:pgd", "norm": "linf", "epsilon": 0.1}


@pytest.fixture
def numbers(tmp_path):
    """Write a published table; returns its path."""

    def write(*rows, **more):
        path = tmp_path / "numbers.json"
        path.write_text(json.dumps({"source": "a paper", "unit": "fractions", "rows": rows, **more}))
        return path

    return write


@pytest.fixture
def asked(digits):
    """Options that run the digits' model, twice, on eight images."""
    data = Data(digits.inputs, digits.labels, [str(place) for place in range(16)])
    return Options(models={"net": digits.classifier, "other": Classifier(digits.module)}, data=data, limit=8)


def reproduce(path, options, **arguments):
    table = PaperTable("mine", "a table", path, arguments={"models": {"Net": "net"}, **arguments})
    return table.run(options)


def test_every_folder_of_a_paper_takes_part():
    folder = Path(reproductions.__file__).parent
    assert {path.parent.name for path in folder.glob("*/published")} == set(PAPERS)
    listed = [table.name for table in list_tables().values() if table.published]
    published = {f"{path.parents[1].name}_{path.stem}" for path in folder.glob("*/published/*.json")}
    assert published - {table.published for table in list_tables().values()} == {"canary_statements"}
    assert listed == sorted(listed, key=lambda name: PAPERS.index(name.partition("-")[0]))


def test_names_that_differ_by_parameters_alone_are_told_apart(numbers, asked, digits):
    path = numbers({"attack": "PGD-1", "model": "Net", "MR": 0.25}, {"attack": "PGD-9", "model": "Net", "MR": 0.75})
    attacks = {f"PGD-{steps}": {**PGD, "parameters": {"steps": steps, "step_size": 0.02}} for steps in (9, 1)}
    lines = reproduce(path, asked, attacks=attacks)["lines"]
    rows = [f"{model}, PGD-{steps}" for steps in (1, 9) for model in ("net", "other")]
    assert [(line["row"], line["published"]) for line in lines] == list(
        zip(rows, (0.25, 0.25, 0.75, 0.75), strict=True)
    )
    ours = {line["row"]: line["ours"] for line in lines}
    case = (digits.classifier, digits.inputs[:8], digits.labels[:8], ThreatModel("linf", 0.1))
    for steps in (1, 9):
        success = run_attack("foolbox:pgd", *case, steps=steps, step_size=0.02, random_start=False).success
        assert ours[f"net, PGD-{steps}"] == pytest.approx(float(success.double().mean()))
    quick = reproduce(path, replace(asked, quick=True), attacks=attacks, quick={"limits": {"steps": 1}})
    assert {line["ours"] for line in quick["lines"]} == {ours["net, PGD-1"]}
    assert len(quick["lines"]) == 4


def test_a_table_of_attacks_is_the_mean_over_the_models_and_one_of_models_over_the_attacks(numbers, asked):
    attacks = {"PGD": {**PGD, "parameters": {"steps": 3}}, "FGSM": {**PGD, "attack": "foolbox:fgsm"}}
    path = numbers({"attack": "FGSM", "rate": 0.5}, {"attack": "PGD", "rate": None}, {"attack": "JSMA", "rate": 0.1})
    result = reproduce(path, asked, attacks=attacks, columns={"rate": "MR"})
    assert [(line["row"], line["published"], line["beside"]) for line in result["lines"]] == [
        ("FGSM", 0.5, "the paper's")
    ]
    assert result["lines"][0]["n"] == 16
    assert result["readings"] == {"MR": "the paper's rate"}
    assert result["left_out"] == {"JSMA": "no attack was chosen for this name"}
    path = numbers({"model": "Net", "CA": 1.0, "size": 7}, {"model": "Far", "CA": 0.5, "size": 8})
    result = reproduce(path, asked, attacks=attacks)
    ours = [(line["row"], line["published"], line["ours"], line["beside"]) for line in result["lines"]]
    assert ours == [("net", 1.0, 1.0, "Net"), ("other", 0.75, 1.0, "mean of 2 models")]
    assert result["left_out"] == {
        "size": "no metric is named for this column",
        "Far": "no model was chosen for this name",
    }


def test_several_libraries_under_one_name_are_told_apart(numbers, asked):
    path = numbers({"attack": "FGSM", "MR": 0.5})
    lines = reproduce(path, asked, attacks={"FGSM": {**PGD, "attack": "fgsm"}})["lines"]
    libraries = [row.name for row in implementations_of("fgsm") if not row.variant]
    assert {"art:fgsm", "foolbox:fgsm", "torchattacks:fgsm"} < set(libraries)
    assert [line["row"] for line in lines] == [f"FGSM, {name}" for name in sorted(libraries)]


def test_labels_say_what_is_not_the_papers(numbers, asked, tmp_path):
    path = numbers({"attack": "FGSM", "MR": 0.5})
    words = {"attacks": {"FGSM": {**PGD, "attack": "foolbox:fgsm"}}, "same": ("models", "data")}
    assert reproduce(path, asked, **words)["labels"] == ["other models", "other data"]
    np.savez(tmp_path / "images.npz", inputs=np.zeros((2, 3, 8, 8), np.float32), labels=np.zeros(2, int))
    (tmp_path / "net.py").write_text(
        "import torch\ndef net():\n    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3))\n"
    )
    words |= {"models": [f"{tmp_path}/net.py:net"], "data": f"npz:{tmp_path}/images.npz"}
    assert reproduce(path, Options(), **words)["labels"] == []
    assert reproduce(path, Options(data=words["data"]), **words)["labels"] == ["other data"]
    assert reproduce(path, Options(), **words, default={"limits": {"steps": 3}})["labels"] == ["other budget"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "expected the argument attacks of compare_table, got models"),
        ({"attaks": {}}, "unknown argument of compare_table 'attaks'; did you mean attacks?"),
        ({"attacks": {"PGD": {**PGD, "epsilon": "far"}}}, r"attacks\['PGD'\]\.epsilon: expected a radius"),
        ({"attacks": {"PDG": PGD}}, "unknown attack of .*numbers.json 'PDG'; did you mean PGD?"),
        ({"attacks": {"PGD": PGD}, "models": {"Nat": "net"}}, "unknown model of .* 'Nat'; did you mean Net?"),
        ({"attacks": {"PGD": PGD}, "models": []}, "models: expected a list of model names, or a dictionary"),
        ({"attacks": {"PGD": PGD}, "columns": {"M": "MR"}}, "unknown column of .*numbers.json 'M'; did you mean MR?"),
        ({"attacks": {"PGD": PGD}, "columns": {"MR": "RM"}}, "unknown metric 'RM'"),
        ({"attacks": {"PGD": PGD}, "columns": {"MR": "AND"}}, r"AND .* several metrics \(AMD, AED, APCR\)"),
        ({"attacks": {"PGD": PGD}, "default": {"image": 3}}, "unknown key in default 'image'; did you mean images?"),
        ({"attacks": {"PGD": PGD}, "quick": {"images": "3"}}, 'quick.images: expected a whole number, got "3"'),
        ({"attacks": {"PGD": PGD}, "config": {"eight_bits": 1}}, "unknown key 'eight_bits'; did you mean eight_bit?"),
        ({"attacks": {"PGD": PGD}, "same": ["model"]}, "same"),
        ({"attacks": {"PGD": PGD}, "where": {"attack": "none"}}, 'expected rows with "attack" or "model", got 0 rows'),
    ],
)  # fmt: skip
def test_a_mistake_in_a_row_is_one_line(arguments, message, numbers, asked):
    path = numbers({"attack": "PGD", "model": "Net", "MR": 0.5})
    with pytest.raises((InvalidInput, UnknownName), match=message) as caught:
        reproduce(path, asked, **arguments)
    assert "\n" not in str(caught.value)


def test_rows_that_cannot_be_told_apart_are_refused(numbers, asked):
    rows = [{"attack": "PGD", "dataset": name, "MR": rate} for name, rate in (("CIFAR-10", 0.5), ("SVHN", 0.25))]
    path = numbers(*rows)
    with pytest.raises(InvalidInput, match="expected one row for PGD, got 2: choose by dataset with `where`"):
        reproduce(path, asked, attacks={"PGD": PGD})
    (line,) = reproduce(path, asked, attacks={"PGD": PGD}, where={"dataset": "SVHN"})["lines"]
    assert line["published"] == 0.25
    assert find_beside(path, "MR", dataset="SVHN") == (0.25, "the paper's")
    assert find_beside(path, "MR", dataset="MNIST", model="Net") == (None, "Net")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"source": ""}, 'expected "source"'),
        ({"unit": ""}, 'expected "unit"'),
        ({"rows": []}, 'expected "rows", a list of objects'),
        ({"rows": [3]}, 'expected "rows", a list of objects'),
    ],
)
def test_published_numbers_say_where_they_are_from(more, message, numbers, tmp_path):
    with pytest.raises(InvalidInput, match=message):
        load_published(numbers({"attack": "PGD", "MR": 0.5}, **more))
    with pytest.raises(Unavailable, match="expected a JSON file with published numbers at"):
        load_published(tmp_path / "none.json")
    (tmp_path / "list.json").write_text("[1, 2")
    with pytest.raises(InvalidInput, match="expected JSON in"):
        load_published(str(tmp_path / "list.json"))


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "a b"), ("name", "a:b"), ("compare", 3), ("compare", "no_function"), ("arguments", 3), ("published", 3)],
)
def test_a_row_has_what_a_row_has(field, value):
    with pytest.raises(InvalidInput, match=f"PaperTable: expected {field} as "):
        PaperTable(**{"name": "a", "title": "b", field: value})


def test_arguments_that_compare_does_not_take_are_named():
    table = PaperTable("mine", "a table", compare=lambda published, options, *, figure: {}, arguments={"fig": 1})
    with pytest.raises(InvalidInput, match=r"mine: `compare` does not accept .*: missing a required"):
        table.run(Options())
    with pytest.raises(InvalidInput, match="expected `compare` to return a dictionary, got int"):
        PaperTable("mine", "a table", compare=lambda published, options: 3).run(Options())


def test_a_plan_knows_which_attack_a_cell_is_of(digits):
    attacks = tuple(AttackChoice("foolbox:pgd", "linf", 0.1, parameters={"steps": steps}) for steps in (3, 5, 3))
    data = Data(digits.inputs, digits.labels, [str(place) for place in range(16)])
    plan = make_plan(Config(attacks=attacks), models={"net": digits.classifier}, data=data)
    assert [(cell.parameters["steps"], plan.choices[cell.key]) for cell in plan.cells] == [(3, (0, 2)), (5, (1,))]


FILE = """
from davylamp.benchmarks import PaperTable
import helper

def compare(published, options, *, number):
    print("noise")
    return {"number": helper.half(number), "seed": options.seed}

def fail(published, options):
    return {}[published]

def show(result, console):
    console.print(result["number"])

GOOD = PaperTable("mine", "a table", compare=compare, arguments={"number": 3}, show=show, runs_models=False)
BAD = PaperTable("bad", "a table", compare=fail)
NONE = 3
"""


def test_a_table_of_a_file_runs_behind_the_wall(run, tmp_path):
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / "mine.py").write_text(FILE)
    (folder / "helper.py").write_text("def half(number):\n    return number / 2\n")
    code, out, _ = run("reproduce", "papers/mine.py:GOOD", "--json", "--seed", 4)
    assert (code, json.loads(out)) == (0, {"number": 1.5, "seed": 4})
    assert run("reproduce", "papers/mine.py:GOOD")[1].strip().endswith("1.5")
    for name, message in (
        ("papers/mine.py:BAD", "papers/mine.py:BAD raised KeyError: '' (line 10 of mine.py)"),
        ("papers/mine.py:NONE", "expected a PaperTable as papers/mine.py:NONE, got int"),
        ("papers/mine.py:GOD", "unknown table in"),
        ("papers/none.py:GOOD", "no such file: papers/none.py"),
    ):
        code, out, errors = run("reproduce", name)
        assert (code, out) == (1, "")
        assert message in errors
        assert errors.count("\n") == 1
    code, _, errors = run("reproduce", "papers/mine.py:GOOD", "--limit", 3)
    assert code == 1
    assert "--limit" in errors


def test_other_packages_bring_tables_and_a_bad_one_costs_itself(run, tmp_path, monkeypatch):
    (tmp_path / "elsewhere.py").write_text(
        "from davylamp.benchmarks import PaperTable\n"
        "def compare(published, options):\n    return {'here': True}\n"
        "TABLES = [PaperTable(f'else-table{n}', f'table {n}', compare=compare) for n in (1, 2)]\n"
        "AGAIN = PaperTable('checks', 'another')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    points = [EntryPoint(name, f"elsewhere:{name}", reproductions.ENTRY_POINTS) for name in ("TABLES", "AGAIN", "NO")]
    monkeypatch.setattr(reproductions, "entry_points", lambda group: [p for p in points if p.group == group])
    tables, refused = collect_tables()
    assert list(tables)[-2:] == ["else-table1", "else-table2"]
    assert refused["AGAIN"] == "ValueError: there is a table checks already"
    assert refused["NO"].startswith("AttributeError")
    assert find_table("else-table2").run(Options()) == {"here": True}
    code, out, errors = run("reproduce")
    assert code == 0
    assert "else-table1" in out
    assert "omitted: AGAIN: ValueError: there is a table checks already" in errors
    assert json.loads(run("reproduce", "--json")[1])["else-table1"] == "table 1"
    assert "did you mean else-table" in run("reproduce", "else-table3")[2]
