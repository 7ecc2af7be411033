"""The hard limit of a sandbox: the system itself refuses what is beyond it, however fast a program forks."""

import subprocess
import sys

import pytest

from davylamp.adapters.models.sandbox import bubblewrap
from davylamp.adapters.models.sandbox.bubblewrap import TaskLimit

FORKS = """
import os, time
started = 0
try:
    while started < 200:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        started += 1
except OSError as error:
    print(started, type(error).__name__)
os.killpg(0, 9)
"""


@pytest.fixture
def limit():
    made = TaskLimit(30)
    yield made
    made.remove()


def run(limit):
    command = limit.limited([sys.executable, "-S", "-c", FORKS])
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, start_new_session=True, timeout=30, check=False)


def test_no_more_processes_than_allowed(limit):
    if limit._place is None:
        pytest.skip("this user may not make a control group here")
    assert run(limit).stdout.split() == ["29", "BlockingIOError"]  # the program itself is one, too


def test_a_group_of_a_process_that_is_gone_is_removed(limit):
    if limit._place is None:
        pytest.skip("this user may not make a control group here")
    gone = subprocess.check_output([sys.executable, "-S", "-c", "import os; print(os.getpid())"], text=True)
    stale = limit._place.parent / f"davylamp-{int(gone)}-0"
    stale.mkdir()
    TaskLimit(5).remove()
    assert not stale.exists()
    assert limit._place.exists()


def test_without_control_groups_there_is_no_hard_limit_and_the_command_is_as_it_was(monkeypatch, tmp_path):
    monkeypatch.setattr(bubblewrap, "_MOUNT", tmp_path)
    limit = TaskLimit(5)
    assert limit.limited(["a", "b"]) == ["a", "b"]
    limit.remove()
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("8:pids:/a\n1:cpu:/x\n0::/b\n", ["pids/a", "pids", "b", ""]),
        ("0::/user.slice/c\n", ["user.slice/c", ""]),
        ("0::/\n", [""]),
    ],
)
def test_where_a_group_may_be_made(monkeypatch, tmp_path, text, places):
    (tmp_path / "groups").write_text(text)
    for place in places:
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(bubblewrap, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(bubblewrap, "_MOUNT", tmp_path)
    assert bubblewrap._parents() == [tmp_path / place for place in places]
