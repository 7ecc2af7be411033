"""A library is one record: the built-in ones are whole, and one in another package takes part in everything."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest

from davylamp.adapters import IMPLEMENTATIONS, LIBRARIES, Finding, Implementation, Library
from davylamp.adapters.catalogue.lookup import find_library
from davylamp.engine import ResultsStore, load
from davylamp.errors import InvalidInput, MissingLibrary, UnknownName

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
    code = (
        "import numpy as np, net; x, y = net.load_images(); np.savez('images.npz', inputs=x.numpy(), labels=y.numpy())"
    )
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
    return folder


def davylamp(folder, *arguments, site=None):
    """The command in a process of its own; what it printed, as (code, output, errors)."""
    paths = [str(site)] if site else []
    paths += [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    done = subprocess.run(
        [sys.executable, "-m", "davylamp.cli", *map(str, arguments)],
        cwd=folder, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


COMMON = ("--data", "npz:images.npz", "--epsilon", "0.1", "--norm", "linf")


@pytest.fixture(scope="module")
def results(installed, workplace):
    """An evaluation of the tiny library's attacks beside another library's."""
    attacks = ("--attacks", "tiny:pgd,foolbox:pgd,corners")
    code, _, errors = davylamp(
        workplace, "evaluate", "--models", "net.py:net", *attacks, *COMMON, "--out", "results", site=installed
    )
    assert code == 0, errors
    return workplace / "results"


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


def test_it_is_listed_with_its_findings(installed, tmp_path):
    code, out, _ = davylamp(tmp_path, "attacks", "--library", "tiny", "--json", site=installed)
    assert code == 0
    rows = {row["implementation"]: row for row in json.loads(out)}
    assert set(rows) == {"tiny:pgd", "tiny:corners"}
    assert rows["tiny:corners"]["knowledge"] == "score-based"
    assert rows["tiny:pgd"]["defaults"] == {"steps": 10, "step_size": None}
    assert rows["tiny:corners"]["defaults"] == {"steps": 20}
    assert "always starts at the clean image" in davylamp(tmp_path, "attacks", "pgd", site=installed)[1]
    assert "tiny" not in davylamp(tmp_path, "attacks", "pgd")[1]


def test_compare_runs_it_beside_the_others_with_the_same_meaning(installed, workplace):
    code, out, errors = davylamp(
        workplace, "compare", "pgd", "--model", "net.py:net", *COMMON, "--steps", 8, "--step-size", 0.02,
        "--param", "random_start=false", "--library", "tiny,foolbox", "--json", site=installed,
    )  # fmt: skip
    assert code == 0, errors
    document = json.loads(out)
    rows = {row["implementation"]: row for row in document["rows"]}
    assert set(rows) == {"tiny:pgd", "foolbox:pgd"}
    assert (rows["tiny:pgd"]["forwards_median"], rows["tiny:pgd"]["backwards_median"]) == (8, 8)
    assert rows["tiny:pgd"]["findings"] == ["no-start-in-the-ball"]
    assert document["pairs"][0]["verdict"] == "identical"  # the same steps from the same start


def test_it_appears_in_tables_rankings_and_the_report(installed, results):
    frame = load(results)
    assert set(frame["implementation"]) == {"tiny:pgd", "foolbox:pgd", "tiny:corners"}
    code, out, _ = davylamp(results.parent, "table", "results", "--json", site=installed)
    assert code == 0
    assert "tiny:corners" in out
    code, out, errors = davylamp(results.parent, "rank", "results", "--subjects", "attacks", "--json", site=installed)
    assert code == 0, errors
    assert "corners" in out
    code, _, errors = davylamp(results.parent, "report", "results", "-o", "report.html", site=installed)
    assert code == 0, errors
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


def test_a_folder_stays_readable_where_the_library_is_not(installed, results):
    """Without the library every number is as it was, and a note says that the attack is not here."""
    with_it = davylamp(results.parent, "table", "results", "--json", site=installed)[1]
    code, without, errors = davylamp(results.parent, "table", "results", "--json")
    assert code == 0, errors
    rows = json.loads(with_it)["rows"], json.loads(without)["rows"]
    assert rows[0] == rows[1]
    text = davylamp(results.parent, "table", "results")
    assert "not in the catalogue here, described by its records: tiny:corners" in " ".join((text[1] + text[2]).split())
    for command in (
        ("check", "results", "--json"),
        ("rank", "results", "--subjects", "attacks"),
        ("status", "results"),
    ):
        code, out, errors = davylamp(results.parent, *command)
        assert "corners" in out, (command, errors)
    code, _, errors = davylamp(results.parent, "report", "results", "-o", "without.html")
    assert code == 0, errors
    assert "tiny:corners" in (results.parent / "without.html").read_text()


def test_running_it_where_it_is_not_says_so(results):
    code, _, errors = davylamp(
        results.parent, "evaluate", "--models", "net.py:net", "--attacks", "tiny:pgd", *COMMON, "--out", "other"
    )
    assert code == 1
    assert "unknown library 'tiny'" in errors


def test_a_library_that_is_not_installed_is_named_with_what_installs_it():
    with pytest.raises(MissingLibrary, match="pip install no-such-thing"):
        raise MissingLibrary("absent", "", package="no-such-thing")


BROKEN = {
    "raises": ("raise ImportError('no such\\nthing')", "no such thing"),
    "is no record": ("LIBRARY = 3", "expected a davylamp.adapters.Library"),
    "has a name that is taken": ("LIBRARY = make('foolbox')", "there is a library foolbox already"),
    "names an unknown attack": ("LIBRARY = make('odd', row('odd', 'unheard-of'))", "unknown attack"),
    "names an unknown parameter": (
        "LIBRARY = make('odd', row('odd', 'pgd', params={'eps': 'e'}))", "unknown parameter eps"
    ),
    "names an unknown finding": ("LIBRARY = make('odd', row('odd', 'pgd', findings=('f',)))", "unknown finding f"),
    "gives an attack another meaning": (
        "LIBRARY = make('odd', introduces=(Attack('pgd', 'x', 'minimum-norm', 'white-box', ''),))", "already"
    ),
}  # fmt: skip
MAKE = """
from davylamp.adapters import Attack, Implementation, Library

def row(library, attack, **more):
    return Implementation(attack, library, classes={"linf": "math:sqrt"}, **more)

def make(name, *rows, **more):
    return Library(name, module="math", distribution="x", attacks=rows, driver="math:sqrt", package="x", **more)

"""


@pytest.mark.parametrize("what", BROKEN)
def test_a_record_that_cannot_be_used_costs_itself(what, tmp_path):
    code, reason = BROKEN[what]
    (tmp_path / "strange_record.py").write_text(MAKE + code)
    info = tmp_path / "strange-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[davylamp.libraries]\nodd = strange_record:LIBRARY\n")
    status, out, errors = davylamp(tmp_path, "attacks", "pgd", "--library", "foolbox", site=tmp_path)
    assert status == 0, errors
    assert "foolbox:pgd" in out
    said = " ".join((out + errors).split())
    assert reason in said
    assert "odd" in said


def test_findings_are_sentences_of_the_norms_that_they_concern():
    for library in LIBRARIES.values():
        for key, finding in library.findings.items():
            assert isinstance(finding, Finding)
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
