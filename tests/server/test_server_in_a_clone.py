"""A lab inside of the clone that davylamp is installed from: no program of a user reads its keys."""

import shutil
import tempfile
from pathlib import Path

import pytest
from sqlalchemy import select

import davylamp
from davylamp.adapters.models.sandbox.bubblewrap import find_sandbox
from davylamp.server.database.records import CellRow, TaskRow
from davylamp.server.folder import ServerFolder, Settings
from davylamp.server.tasks.sandboxed import TaskLimits
from davylamp.server.tasks.seeds import seed_components
from davylamp.server.tasks.signing import public_key
from davylamp.server.tasks.submission import TaskRequest, submit
from davylamp.server.tasks.work import TaskWorker, WorkerSettings

pytestmark = pytest.mark.skipif(not find_sandbox().program, reason=find_sandbox().reason)
KIT = Path(__file__).parents[1] / "hostile/sandbox.py"
DEEDS = (
    *("reads_the_key_of_forms", "reads_the_signing_key", "reads_the_database", "opens_the_database"),
    *("lists_the_blobs", "lists_the_tasks", "reads_the_results_of_its_task", "reads_the_history"),
)
# Each is a process that loads torch, and each alone is in tests/hostile/test_sandbox.py. `all` is nightly.
FEW = ("reads_the_signing_key", "opens_the_database", "lists_the_tasks")


@pytest.fixture
def folder(database):
    """In place of that of the other tests."""
    place = Path(tempfile.mkdtemp(prefix=".lab-", dir=Path(davylamp.__file__).parent))
    made = ServerFolder(place, database, Settings(cheap=True))
    with made.database.writing() as session:
        seed_components(session)
    assert made.secret
    assert public_key(made)
    yield made
    made.database.close()
    shutil.rmtree(place)


@pytest.mark.parametrize("deeds", [FEW, DEEDS], ids=["few", "all"])
@pytest.mark.usefixtures("in_process")
def test_its_users_programs_see_nothing_of_it(folder, users, embedded, add, deeds):
    content = KIT.read_bytes()
    numbers = {
        add(users["alice"], "attack", "code", deed, "sandbox.py", content, name=deed.replace("_", "-")): deed
        for deed in deeds
    }
    attacks = [{"component": number, "epsilon": 0.1} for number in numbers]
    attacks += [{"component": embedded["foolbox:fgsm"], "epsilon": 0.1}]
    settings = {"models": [embedded["demo:mnist-lenet5"]], "data": [embedded["demo:mnist"]], "limit": 2}
    with folder.database.writing() as session:
        number = submit(session, folder, users["alice"], TaskRequest({**settings, "attacks": attacks})).id
    assert TaskWorker(folder, WorkerSettings(limits=TaskLimits(memory=2.0))).run_one()
    with folder.database.reading() as session:
        assert session.get_one(TaskRow, number).state == "done"
        rows = session.scalars(select(CellRow)).all()
    failed = {numbers[row.attack_id]: row.reason for row in rows if row.attack_id in numbers}
    assert set(failed) == set(deeds)
    assert [deed for deed, reason in failed.items() if "LEAKED" in reason] == []
    assert all("No such file" in reason or "unable to open" in reason for reason in failed.values()), failed
    assert {row.state for row in rows if row.attack_id not in numbers} == {"done"}
