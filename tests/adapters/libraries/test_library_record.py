"""A library is one record: the built-in ones are whole, and one in another package takes part in everything."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from davylamp.adapters import IMPLEMENTATIONS, LIBRARIES, Implementation, KnownIssue, Library
from davylamp.adapters.catalogue.lookup import find_library
from davylamp.engine import ResultsStore, load
from davylamp.errors import InvalidInput, UnknownName

TINY = Path(__file__).parents[2] / "tiny_library"
MODEL = '''
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 32), nn.ReLU(), nn.Linear(32, 4))

def load_images():
    """Labels are what the model says: every image is attacked."""
    inputs = torch.rand(12, 3, 8, 8, generator=torch.Generator().manual_seed(1)) * 0.8 + 0.1
    return inputs, net()(inputs).argmax(1)
'''


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder that the tiny library is installed into, with its entry point, without touching this environment."""
    target = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source") / "tiny"
    subprocess.run(["cp", "-r", str(TINY), str(source)], check=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(source)], check=True, capture_output=True)
    return target


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder with a model file and images."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "net.py").write_text(MODEL)
    module: dict[str, Any] = {}
    exec(MODEL, module)
    inputs, labels = module["load_images"]()
    np.savez(folder / "images.npz", inputs=inputs.numpy(), labels=labels.numpy())
    return folder


SEVERAL = """
import contextlib, io, json, sys
from davylamp import cli

answers = []
for arguments in json.load(sys.stdin):
    sys.argv = ["davylamp", *arguments]
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
    answers.append((code, out.getvalue(), errors.getvalue()))
json.dump(answers, sys.stdout)
"""


def davylamp(folder, site, *commands):
    """Commands one after the other in one new process that sees a site; of each (code, output, errors)."""
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL],
        cwd=folder, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        input=json.dumps([[str(word) for word in command] for command in commands]),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


COMMON = ("--data", "npz:images.npz", "--epsilon", "0.1", "--norm", "linf")


@pytest.fixture(scope="module")
def said(installed, workplace):
    """What commands say where the tiny library is installed: it runs beside others, and everything reads the folder."""
    commands = {
        "evaluate": (
            "--models", "net.py:net", "--attacks", "tiny:pgd,foolbox:pgd,corners", *COMMON, "--out", "results",
        ),
        "compare": (
            "pgd", "--model", "net.py:net", *COMMON, "--steps", 8, "--step-size", 0.02,
            "--param", "random_start=false", "--library", "tiny,foolbox", "--json",
        ),
        "attacks": ("--library", "tiny", "--json"),
        "attacks pgd": ("--library", "tiny"),
        "table": ("results", "--json"),
        "rank": ("results", "--subjects", "attacks", "--method", "borda", "--json"),
        "report": ("results", "-o", "report.html"),
    }  # fmt: skip
    answers = davylamp(workplace, installed, *((*name.split(), *words) for name, words in commands.items()))
    assert [(name, errors) for name, (code, _, errors) in zip(commands, answers, strict=True) if code] == []
    return {name: out for name, (_, out, _) in zip(commands, answers, strict=True)}


@pytest.fixture(scope="module")
def results(said, workplace):
    """An evaluation of the tiny library's attacks beside another library's."""
    del said
    return workplace / "results"


@pytest.fixture
def run_here(results, run, few_draws, monkeypatch):
    """Run a command beside that folder in this process, where the tiny library is not."""
    monkeypatch.chdir(results.parent)
    return run


def test_the_built_in_records_are_whole():
    for name, library in LIBRARIES.items():
        assert library.is_installed
        assert library.version == version(library.distribution)
        assert all(IMPLEMENTATIONS[row.name] is row for row in library.attacks)
        assert library.name == name
    assert list(LIBRARIES)[:5] == ["art", "foolbox", "torchattacks", "adv-lib", "torchattack"]


@pytest.mark.parametrize("name", ["", "my lib", "a:b", "x.py", "a/b"])
def test_a_name_that_could_be_taken_for_a_file_is_refused(name):
    with pytest.raises(InvalidInput, match="library's name"):
        Library(name, module="x", distribution="x", attacks=(), driver=".d:run", package="x")


def test_a_row_of_another_library_is_refused():
    row = Implementation("pgd", "other", classes={"linf": "x:y"})
    with pytest.raises(InvalidInput, match="other:pgd"):
        Library("mine", module="x", distribution="x", attacks=(row,), driver=".d:run", package="x")


def test_an_unknown_library_is_named_with_what_is_close():
    with pytest.raises(UnknownName, match="did you mean foolbox"):
        find_library("foolbax")


def test_it_is_listed_with_its_findings(said):
    rows = {row["implementation"]: row for row in json.loads(said["attacks"])}
    assert set(rows) == {"tiny:pgd", "tiny:corners"}
    assert rows["tiny:corners"]["knowledge"] == "score-based"
    assert rows["tiny:pgd"]["defaults"] == {"steps": 10, "step_size": None}
    assert rows["tiny:corners"]["defaults"] == {"steps": 20}
    assert "always starts at the clean image" in said["attacks pgd"]


def test_compare_runs_it_beside_the_others_with_the_same_meaning(said):
    document = json.loads(said["compare"])
    rows = {row["implementation"]: row for row in document["rows"]}
    assert set(rows) == {"tiny:pgd", "foolbox:pgd"}
    assert (rows["tiny:pgd"]["forwards_median"], rows["tiny:pgd"]["backwards_median"]) == (8, 8)
    assert rows["tiny:pgd"]["findings"] == ["no-start-in-the-ball"]
    assert document["pairs"][0]["verdict"] == "identical"  # the same steps from the same start


def test_it_appears_in_tables_rankings_and_the_report(said, results):
    frame = load(results)
    assert set(frame["implementation"]) == {"tiny:pgd", "foolbox:pgd", "tiny:corners"}
    assert "tiny:corners" in said["table"]
    assert "corners" in said["rank"]
    page = (results.parent / "report.html").read_text()
    assert "tiny:corners" in page
    assert "always starts at the clean image" in page


def test_its_version_and_that_of_its_record_are_part_of_a_result(results):
    store = ResultsStore(results)
    records = {record.meta["spec"]["attack"]: record.meta for _, record in store.read_all("cells")}
    assert records["tiny:pgd"]["spec"]["version"] == "0.1"
    assert records["tiny:pgd"]["versions"]["davylamp-tiny"] == "0.1"
    assert "davylamp-tiny" in records["foolbox:pgd"]["versions"]  # installed beside it
    assert records["tiny:corners"]["about"]["knowledge"] == "score-based"


def test_a_folder_stays_readable_where_the_library_is_not(said, run_here):
    """Without the library every number is as it was, and a note says that the attack is not here."""
    code, without, errors = run_here("table", "results", "--json")
    assert code == 0, errors
    assert json.loads(said["table"])["rows"] == json.loads(without)["rows"]
    text = run_here("table", "results")
    assert "tiny:corners is not in the catalogue" in " ".join((text[1] + text[2]).split())
    for command in (
        ("check", "results", "--json"),
        ("rank", "results", "--subjects", "attacks", "--method", "borda"),
        ("status", "results"),
    ):
        code, out, errors = run_here(*command)
        assert "corners" in out, (command, errors)
    code, _, errors = run_here("report", "results", "-o", "without.html")
    assert code == 0, errors
    assert "tiny:corners" in Path("without.html").read_text()


def test_listing_and_running_it_where_it_is_not_say_so(run_here):
    evaluation = ("evaluate", "--models", "net.py:net", "--attacks", "tiny:pgd", *COMMON, "--out", "other")
    for command in (evaluation, ("attacks", "--library", "tiny")):
        code, _, errors = run_here(*command)
        assert code == 1
        assert "unknown library 'tiny'" in errors


BROKEN = {
    "raises": ("raise ImportError('no such\\nthing')", "no such thing"),
    "exits": ("raise SystemExit(3)", "called sys.exit(3)"),
    "ends the process": ("import os; os._exit(4)", "called os._exit(4)"),
    "is interrupted": ("raise KeyboardInterrupt", "raised KeyboardInterrupt"),
    "is no record": ("LIBRARY = 3", "expected a davylamp.adapters.Library"),
    "has a name that is taken": ("LIBRARY = make('foolbox')", "name foolbox is already taken"),
    "names an unknown attack": ("LIBRARY = make('odd', row('odd', 'unheard-of'))", "has no attack unheard-of"),
    "names an unknown parameter": (
        "LIBRARY = make('odd', row('odd', 'pgd', params={'eps': 'e'}))", "unknown parameter eps"
    ),
    "names an unknown finding": ("LIBRARY = make('odd', row('odd', 'pgd', findings=('f',)))", "issue is called f"),
    "gives an attack another meaning": (
        "LIBRARY = make('odd', introduces=(Attack('pgd', 'x', 'minimum-norm', 'white-box', ''),))", "differently"
    ),
}  # fmt: skip
MAKE = """
from davylamp.adapters import Attack, Implementation, Library

def row(library, attack, **more):
    return Implementation(attack, library, classes={"linf": "math:sqrt"}, **more)

def make(name, *rows, **more):
    return Library(name, module="math", distribution="x", attacks=rows, driver="math:sqrt", package="x", **more)

"""
PRINTS = "import os; print('hello'); os.write(1, b'hello')\n"


@pytest.fixture(scope="module")
def broken_site(tmp_path_factory):
    """A package with an entry point for each record that cannot be used, and what is said in the presence of all.

    Each prints first, by Python and past it: neither is among the results.
    """
    site = tmp_path_factory.mktemp("broken")
    names = [f"odd{number}" for number in range(len(BROKEN))]
    for name, (code, _) in zip(names, BROKEN.values(), strict=True):
        (site / f"strange_{name}.py").write_text(PRINTS + MAKE + code.replace("'odd'", f"'{name}'"))
    info = site / "strange-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1.0\n")
    lines = [f"{name} = strange_{name}:LIBRARY" for name in names]
    (info / "entry_points.txt").write_text("\n".join(["[davylamp.libraries]", *lines, ""]))
    [(code, out, errors)] = davylamp(site, site, ("attacks", "pgd", "--library", "foolbox", "--json"))
    assert code == 0, errors
    json.loads(out)
    return out + errors


@pytest.mark.parametrize("what", BROKEN)
def test_a_record_that_cannot_be_used_costs_itself(what, broken_site):
    assert "foolbox:pgd" in broken_site
    said = " ".join(broken_site.split())
    library = f"the library odd{list(BROKEN).index(what)} is omitted: "
    assert BROKEN[what][1] in said.partition(library)[2].partition("the library")[0]


def test_findings_are_sentences_of_the_norms_that_they_concern():
    for library in LIBRARIES.values():
        for key, finding in library.findings.items():
            assert isinstance(finding, KnownIssue)
            assert key == key.lower()
            assert finding.text
            assert set(finding.norms) <= {"linf", "l2", "l1", "l0"}


def test_frames_of_a_foreign_cell_have_what_its_record_says(results, monkeypatch):
    frame = load(results)
    assert "tiny:corners" not in IMPLEMENTATIONS
    corners = frame[frame["implementation"] == "tiny:corners"]
    assert set(corners["knowledge"]) == {"score-based"}
    assert not corners["minimum_norm"].any()
    assert isinstance(frame, pd.DataFrame)
