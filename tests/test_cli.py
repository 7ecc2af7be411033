"""The command line as a user meets it: documents for programs, tables for people, one line for a mistake."""

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from davylamp.adapters.catalogue.lookup import implementations_of
from davylamp.adapters.models.sandbox.isolated import describe_isolated
from davylamp.adapters.models.sandbox.isolation import Isolation

ROOT = Path(__file__).parent.parent
FACTORY = """
import torch
from torch import nn

def factory():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))

def probabilities():
    return nn.Sequential(factory(), nn.Softmax(1))
"""


@pytest.fixture
def run(run, tmp_path):
    """Run a command where there is a model."""
    (tmp_path / "net.py").write_text(FACTORY)
    return run


@pytest.fixture
def npz(tmp_path):
    """Eight images labelled as the model of FACTORY sees them."""
    import numpy as np

    namespace: dict = {}
    exec(FACTORY, namespace)
    inputs = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    labels = namespace["factory"]()(inputs).argmax(1)
    np.savez(tmp_path / "images.npz", inputs=inputs.numpy(), labels=labels.numpy())
    return "npz:images.npz"


def test_attacks_as_json_lists_every_row_with_its_defaults(run):
    from davylamp.adapters import IMPLEMENTATIONS

    code, out, _ = run("attacks", "--json")
    rows = json.loads(out)
    assert code == 0
    assert {row["implementation"] for row in rows} == set(IMPLEMENTATIONS)
    pgd = next(row for row in rows if row["implementation"] == "foolbox:pgd")
    assert pgd["defaults"]["linf"]["steps"] == 40
    assert pgd["knowledge"] == "white-box"


def test_attacks_as_a_table_and_one_attack_in_detail(run):
    code, out, _ = run("attacks", "--library", "art", "--wide")
    assert code == 0
    assert "art:pgd" in out
    assert "foolbox:" not in out
    code, out, _ = run("attacks", "--library", "art,foolbox")
    (line,) = (line for line in out.splitlines() if line.startswith("pgd "))
    assert line.split()[:4] == ["pgd", "art,", "foolbox", "linf,"]
    code, out, _ = run("attacks", "pgd")
    assert code == 0
    assert "step_size" in out
    assert "iterations of the attack's main loop" in out


def test_compare_prints_one_json_document(run, npz):
    code, out, _ = run("compare", "fgsm", "--model", "net.py:factory", "--data", npz, "--epsilon", "2/255", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["threat_model"] == {"norm": "linf", "epsilon": pytest.approx(2 / 255), "targeted": False}
    assert {"attack", "threat_model", "parameters", "model", "data", "seed", "rows", "pairs"} <= set(document)
    wanted = {"library", "implementation", "images", "MR", "MR_interval", "MR_8bit", "AMD", "AED", "l2_median"}
    wanted |= {"linf_median", "forwards_median", "backwards_median", "seconds_per_image", "violations", "error"}
    for row in document["rows"]:
        assert wanted <= set(row)
        assert row["images"] == 8
        assert row["error"] is None
    assert {pair["verdict"] for pair in document["pairs"]} == {"identical"}
    assert {"a", "b", "verdict", "p_success", "p_distance", "max_difference"} <= set(document["pairs"][0])


def test_compare_prints_csv_and_plain_tables_in_a_pipe(run, npz):
    common = ("compare", "fgsm", "--model", "net.py:factory", "--data", npz, "--limit", "3")
    _, out, _ = run(*common, "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["implementation"] for row in rows] == [row.name for row in implementations_of("fgsm")]
    assert all(row["images"] == "3" for row in rows)
    _, out, _ = run(*common)
    assert "identical" in out
    assert "\x1b" not in out
    assert not set(out) & set("─│┃━")


def test_defaults_show_what_differs(run, npz):
    arguments = ("--model", "net.py:factory", "--data", npz, "--limit", "2", "--defaults", "--norm", "linf")
    code, out, _ = run("compare", "pgd", *arguments)
    assert code == 0
    assert "Defaults that differ" in out
    lines = [line.split() for line in out.splitlines()]
    (head,) = (place for place, line in enumerate(lines) if line[:2] == ["implementation", "steps"])
    steps = [line[1] for line in lines[head + 1 : head + 8]]
    assert steps == ["100", "40", "10", "40", "10", "10", "10"]  # the last two libraries have none
    rows = json.loads(run("compare", "pgd", *arguments, "--json")[1])["rows"]
    assert [row["backwards_median"] for row in rows] == [float(each) for each in steps]  # as many were counted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "pdg"], "unknown attack 'pdg'; did you mean"),
        (["compare", "pgd", "--library", "foolbx"], "unknown library 'foolbx'; did you mean foolbox"),
        (["compare", "pgd", "--norm", "l7"], "unknown norm 'l7'"),
        (["compare", "pgd", "--norm", "l0"], "no implementation of pgd supports the norm l0; supported: linf, l2, l1"),
        (["compare", "pgd", "--epsilon", "0"], "davylamp: --epsilon: expected a number > 0, got 0"),
        (["compare", "fgsm", "--epsilon", "8"], "expected linf epsilon in (0, 1], got 8.0"),
        (["compare", "pgd", "--epsilon", "8/x"], "expected epsilon as a number or a fraction"),
        (["compare", "pgd", "--param", "stepz=3"], "unknown parameter 'stepz'; did you mean steps"),
        (["compare", "pgd", "--param", "steps"], "expected --param name=value, got 'steps'"),
        (["compare", "pgd", "--steps", "0"], "expected steps >= 1"),
        (["compare", "pgd", "--model", "demo:vgg"], "unknown model 'demo:vgg'"),
        (["compare", "pgd", "--model", "net.py:nothing"], "net.py"),
        (["compare", "pgd", "--data", "imagefolder:nowhere"], "nowhere"),
        (["compare", "pgd", "--data", "imagefolder:."], "expected class folders"),
        (["compare", "pgd", "--epsilon", "8"], "epsilon 8 for pgd needs a norm"),
        (["compare", "cw", "--epsilon", "2/255"], "this minimum-norm attack"),
        (["compare", "PGD "], "unknown attack 'PGD '; did you mean pgd"),
        (
            ["compare", "pgd", "--also", "best(foolbox:cw)"],
            "--also best(foolbox:cw) does not support norm linf, only l2;",
        ),
        (["compare", "pgd", "--also", "foolbox:cw"], "--also foolbox:cw does not support norm linf, only l2;"),
        (["compare", "pgd", "--norm", "l2", "--also", "best(foolbox:cw)"], "foolbox:cw is a minimum-norm attack"),
        (["compare", "pgd", "--also", "best(foolbox:pdg)"], "unknown attack 'pdg'"),
        (["compare", "pgd", "--also", "at-saturation(nosuch)"], "unknown attack 'nosuch'"),
        (["compare", "best(pgd)", "--library", "foolbx"], "unknown library 'foolbx'"),
        (["compare", "pgd", "--csv", "--json"], "expected one format, got --csv and --json"),
        (["compare", "pgd", "-o", "pgd.html"], "expected --out as a file that ends with .json or .csv or .tex"),
        (["compare", "pgd", "-o", "results"], "`davylamp evaluate` writes a results folder"),
        (["compare", "pgd", "-o", "nowhere/pgd.json"], "there is no folder nowhere for --out"),
        (["compare", "pgd", "--limit", "0"], "expected --limit as a whole number from 1, got 0"),
        (["compare", "pgd", "--seed", "-1"], "expected a seed from 0 to 2**32 - 1, got -1"),
        (["compare", "pgd", "--max-queries", "9" * 23], "--max-queries: expected a whole number <= 2147483647"),
        (["compare", "pgd", "--batch-size", "0"], "--batch-size: expected a whole number >= 1, got 0"),
        (["compare", "pgd", "--target", "²"], "--target: expected a target of second-likely"),
        (["compare", "pgd", "--target", "best"], "--target: expected a target of second-likely"),
        (["compare", "pgd", "--param", "batch_size=1e20"], "batch_size"),
        (["compare", "pgd", "--param", "overshoot=1"], "no implementation of pgd has a parameter overshoot"),
        (["compare", "pgd", "--steps", "3", "--param", "steps=4"], "expected one value of steps"),
        (["compare", "pgd", "--library", "art,foolbx"], "unknown library 'foolbx'"),
        (["attacks", "--library", "art,"], "expected --library A,B"),
        (
            ["compare", "pgd", "--model", "net.py:probabilities", "--outputs", "logits", "--data", "foolbox:cifar10"],
            "got probabilities",
        ),
        (["compare", "pgd", "--model", "net.py:factory", "--data", "foolbox:cifar100"], "expected labels from 0 to 9"),
        (["attacks", "nothing-like-it"], "unknown attack"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_1(run, arguments, message):
    code, out, err = run(*arguments)
    assert code == 1
    assert out == ""
    assert message in err
    assert err.startswith("davylamp: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["compare"], ["compare", "pgd", "--stepps", "3"], ["compare", "pgd", "--steps", "x"], ["no"]]
)
def test_wrong_usage_is_exit_code_2(run, arguments):
    assert run(*arguments)[0] == 2


def test_a_missing_library_names_its_extra(run, monkeypatch, npz):
    from davylamp.adapters import Library

    monkeypatch.setattr(Library, "is_installed", property(lambda library: library.name != "art"))
    arguments = ("--model", "net.py:factory", "--data", npz, "--limit", "2")
    code, out, _ = run("compare", "fgsm", *arguments)
    assert code == 0
    assert 'art is not installed; run: pip install "davylamp[art]"' in out
    code, _, err = run("compare", "fgsm", "--library", "art", *arguments)
    assert code == 1
    assert 'pip install "davylamp[art]"' in err


def test_what_compare_chose_is_printed_and_in_the_document(run, npz):
    common = ("compare", "pgd", "--model", "net.py:factory", "--data", npz, "--limit", "2", "--library", "foolbox")
    code, out, err = run(*common, "--json", "--steps", "2", "--isolate", "auto")
    assert code == 0
    assert err == (
        f"- {describe_isolated(Isolation('auto'), ['net.py:factory'])[0]}\n"
        "chosen: norm linf, epsilon 4/255 (customary), step_size 2.5 epsilon / steps, random_start no (matched)\n"
        "chosen: seed 0, device cpu\n"
    )
    matched = {"step_size": "2.5 epsilon / steps", "random_start": False}
    assert json.loads(out)["chosen"] == {"norm": "linf", "epsilon": pytest.approx(4 / 255), "parameters": matched}
    named = ("--norm", "linf", "--epsilon", "0.1", "--seed", "0", "--device", "cpu", "--defaults", "--isolate", "no")
    assert run(*common, *named, "--json")[2] == ""


def test_a_comparison_whose_every_row_failed_is_exit_code_1(run, npz):
    arguments = ("--model", "net.py:factory", "--data", npz, "--limit", "2", "--norm", "linf")
    code, out, err = run("compare", "uap", *arguments, "--target", "1")
    assert code == 1
    assert "omitted" in out
    assert err.splitlines()[-1].startswith("davylamp: ")


def test_the_version_is_the_citations_and_loads_nothing(run):
    code, out, _ = run("--version")
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited
    assert (code, out) == (0, f"davylamp {cited[1]}\n")
    program = (
        "import sys\nfrom davylamp import cli\nsys.argv[1:] = ['--version']\ntry:\n    cli.main()\nexcept SystemExit:\n"
    )
    program += "    print(sorted({'torch', 'numpy', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == f"{out}[]\n"


def test_the_installed_command_runs():
    done = subprocess.run([sys.executable, "-m", "davylamp.cli", "--help"], capture_output=True, text=True, check=True)
    assert "compare" in done.stdout
