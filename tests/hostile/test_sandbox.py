"""A stranger's program sees Python, the package and its own folder, wherever the lab's folder lies."""

import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest

import davylamp
from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.models.sandbox import bubblewrap as sandboxes
from davylamp.adapters.models.sandbox.bubblewrap import find_sandbox
from davylamp.adapters.models.sandbox.isolation import Isolation, attack_isolation_context
from davylamp.errors import DavylampError, InvalidInput
from davylamp.server.folder import ServerFolder, Settings
from davylamp.server.tasks.work import TaskWorker
from tests.hostile import sandbox as kit

pytestmark = pytest.mark.skipif(not find_sandbox().program, reason=find_sandbox().reason)
_FILE = Path(kit.__file__)
CLONE = Path(davylamp.__file__).resolve().parent
STRICT = Isolation("strict", 20.0, 4.0)


def make_lab(lab: Path) -> Path:
    """What a lab's folder holds, and a stranger's file where a task has it."""
    for name in ("blobs/aa", "uploads", "tasks/1/results", "tasks/2/results"):
        (lab / name).mkdir(parents=True)
    for name in ("secret.key", "signing.key", "blobs/aa/file", "uploads/file", "tasks/1/results/cell", "tasks/2/log"):
        (lab / name).write_bytes(bytes(range(32)))
    with sqlite3.connect(lab / "server.db") as database:
        database.execute("CREATE TABLE users (name TEXT)")
        database.execute("INSERT INTO users VALUES ('alice')")
    database.close()
    (lab / sandboxes.LAB_MARK).write_text("1\n")
    other = lab / "tasks/1/room/bob/model-private-1"
    other.mkdir(parents=True)
    (other / "model.py").write_text("")
    path = lab / "tasks/1/room/alice/attack-looks-1/sandbox.py"
    path.parent.mkdir(parents=True)
    return Path(shutil.copyfile(_FILE, path))


@pytest.fixture(scope="module")
def in_clone():
    """A lab inside of the clone that davylamp is installed from."""
    lab = Path(tempfile.mkdtemp(prefix=".lab-", dir=CLONE))
    try:
        yield make_lab(lab)
    finally:
        shutil.rmtree(lab)


def outcome_of(path: Path, name: str, digits) -> str:
    """What an attack of a file fails with in the strict sandbox."""
    os.environ["DAVYLAMP_TEST_TOKEN"] = "hidden"
    classifier = Classifier(digits.module, num_classes=10, name="net")
    try:
        with attack_isolation_context(STRICT), pytest.raises((DavylampError, RuntimeError)) as caught:
            run_attack(f"{path}:{name}", classifier, digits.inputs[:2], digits.labels[:2], ThreatModel("linf", 0.1))
    finally:
        del os.environ["DAVYLAMP_TEST_TOKEN"]
    return str(caught.value)


@pytest.mark.parametrize("name", kit.PROGRAMS)
def test_a_lab_inside_of_the_clone_is_hidden(in_clone, name, digits):
    reason = outcome_of(in_clone, name, digits)
    assert name in reason
    assert "LEAKED" not in reason


def test_a_lab_beside_a_file_of_the_command_line_is_masked(tmp_path, digits):
    path = make_lab(tmp_path / "lab")
    beside = Path(shutil.copyfile(path, tmp_path / "sandbox.py"))
    text = beside.read_text().replace("_LAB =", f"_LAB = Path({str(tmp_path / 'lab')!r}) if 1 else", 1)
    beside.write_text(text)
    for name in ("reads_the_key_of_forms", "reads_the_database", "lists_the_blobs", "lists_the_tasks"):
        assert "LEAKED" not in outcome_of(beside, name, digits)


def test_a_file_in_a_lab_is_refused(tmp_path):
    make_lab(tmp_path / "lab")
    shutil.copyfile(_FILE, tmp_path / "lab/sandbox.py")
    with pytest.raises(DavylampError):
        sandboxes.visible_paths([tmp_path / "lab/sandbox.py"], strict=True)


def test_a_file_beside_the_package_shows_itself_alone():
    assert sandboxes.visible_paths([CLONE / "model.py"], strict=True) == (CLONE / "model.py",)


def test_what_is_bound_of_the_clone_is_the_package():
    bound = [path for path in sandboxes._python() if path.is_relative_to(CLONE)]
    environment = Path(sandboxes.sys.prefix).resolve()
    inside = {path.relative_to(CLONE).as_posix() for path in bound if not path.is_relative_to(environment)}
    modules = {path.name for path in CLONE.glob("*.py")}
    folders = {path.parent.name for path in CLONE.glob("*/__init__.py")} - {"benchmarks", "tools"}
    assert inside == modules | folders


def test_a_lab_where_python_lies_is_refused(tmp_path):
    lab = Path(tempfile.mkdtemp(prefix=".lab-", dir=sandboxes.sys.prefix))
    try:
        opened = ServerFolder(lab)
        with pytest.raises(InvalidInput):
            TaskWorker(opened)
        opened.database.close()
        trusting = ServerFolder(lab, settings=Settings(trust=True))
        TaskWorker(trusting)
        trusting.database.close()
    finally:
        shutil.rmtree(lab)
    hidden = ServerFolder(tmp_path / "lab")
    hidden.check_hidden()
    hidden.database.close()
