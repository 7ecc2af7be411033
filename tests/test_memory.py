"""`memory.keep_freed_memory`: what the process asks the system for, counted by the system itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from davylamp import memory

# Page faults of filling 40 MB ten times, each time freed: before and after a classifier is made, and kept. Then the
# pages that the process holds: with 20 such blocks, with all of them freed, and given back.
COUNTED = """
import resource
import torch
from davylamp.adapters import Classifier
from davylamp.memory import release_unused_memory, keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(10_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

plain = faults()
Classifier(torch.nn.Flatten())
alone = faults()
keep_freed_memory()
faults()  # the first block is new
kept = faults()

def resident():
    return int(open("/proc/self/statm").read().split()[1])

blocks = [torch.ones(10_000_000) for _ in range(20)]
full = resident()
del blocks
freed = resident()
release_unused_memory()
print(plain, alone, kept, full, freed, resident())
"""
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc only")
attempt = memory.keep_freed_memory.__wrapped__


@linux
def test_freed_memory_is_used_again_until_it_is_given_back(monkeypatch: pytest.MonkeyPatch):
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    outcome = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=True)
    plain, alone, kept, full, freed, back = map(int, outcome.stdout.split())
    assert alone > plain / 2  # a classifier changes nothing in the process
    assert kept < plain / 10
    assert freed > 0.9 * full
    assert back < 0.6 * full


VERBS = """
import torch
import davylamp
from davylamp.memory import keep_freed_memory

images, labels = torch.full((2, 3, 4, 4), 0.5), torch.zeros(2, dtype=torch.long)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 2))
torch.nn.init.zeros_(model[1].weight), model[1].bias.data.copy_(torch.tensor([3.0, 0.0]))
for verb in (davylamp.run_attack, davylamp.compare):
    keep_freed_memory.cache_clear()
    verb("torchattacks:fgsm", model, images, labels, norm="linf", epsilon=0.1)
    print(keep_freed_memory.cache_info().currsize)
keep_freed_memory.cache_clear()
davylamp.evaluate(model, images, labels, attacks="torchattacks:fgsm", norm="linf", epsilon=0.1)
print(keep_freed_memory.cache_info().currsize)
"""


def test_a_call_leaves_malloc_as_it_is(tmp_path):
    outcome = subprocess.run([sys.executable, "-c", VERBS], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert outcome.stdout.split() == ["0", "0", "0"]


@linux
@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_"])
def test_what_the_environment_sets_stays(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(name, "65536")
    assert not attempt()


@linux
def test_tunables_of_malloc_stay(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.arena_max=2")
    assert not attempt()


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    assert not attempt()


def a_system(root, available: int, groups: str = "", files: dict[str, str] | None = None):
    """A file system as Linux shows it, of 1000 kB."""
    for name, text in {
        "proc/meminfo": f"MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable: {available} kB\nHugePages_Total: 0\n",
        "proc/self/cgroup": groups,
        **(files or {}),
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="ascii")
    return root


TWO = {"max": "memory.max", "now": "memory.current", "files": "inactive_file"}
ONE = {"max": "memory.limit_in_bytes", "now": "memory.usage_in_bytes", "files": "total_inactive_file"}


@pytest.mark.parametrize(
    ("line", "folder", "names"),
    [
        ("0::/jobs/7\n", "sys/fs/cgroup/jobs/7", TWO),
        ("0::/jobs/7\n", "sys/fs/cgroup/jobs", TWO),  # the limit is that of the group around it
        ("0::/\n", "sys/fs/cgroup", TWO),
        ("9:cpu:/other\n4:memory:/jobs/7\n0::/\n", "sys/fs/cgroup/memory/jobs/7", ONE),
        ("4:memory:/of/the/host\n", "sys/fs/cgroup/memory", ONE),  # in a container
    ],
)
def test_what_is_left_of_a_control_group_counts_where_it_is_less(tmp_path, line: str, folder: str, names: dict):
    stat = f"anon 60\n{names['files']} 30\n"
    files = {names["max"]: "100\n", names["now"]: "90\n", "memory.stat": stat}
    system = a_system(tmp_path, 700, line, {f"{folder}/{name}": text for name, text in files.items()})
    assert memory.available_memory_fraction(system) == pytest.approx(0.4)  # of 100, 90 are used, 30 of them by files
    a_system(tmp_path, 300, line)
    assert memory.available_memory_fraction(system) == pytest.approx(0.3)


def test_a_control_group_without_a_limit_leaves_what_the_machine_has(tmp_path):
    system = a_system(tmp_path, 700, "0::/jobs\n", {"sys/fs/cgroup/jobs/memory.max": "max\n"})
    assert memory.available_memory_fraction(system) == 0.7


def test_where_nothing_is_known_nothing_is_left(tmp_path):
    assert memory.available_memory_fraction(tmp_path) == 0


@pytest.mark.parametrize("more", ["\n", "Strange:\n", "no name\n"])
def test_lines_of_another_form_end_no_task(tmp_path, more: str):
    (a_system(tmp_path, 700) / "proc/meminfo").write_text(
        f"MemTotal: 9 kB\nMemAvailable: 9 kB\n{more}", encoding="ascii"
    )
    assert memory.available_memory_fraction(tmp_path) == 0


@linux
@pytest.mark.parametrize("name", [b"/caf\xe9", b"/a:b", "/two\x85lines".encode()])
def test_a_control_group_may_be_called_anything(tmp_path, name: bytes):
    system = a_system(tmp_path, 700)
    (system / "proc/self/cgroup").write_bytes(b"0::" + name + b"\n")
    folder = system / "sys/fs/cgroup" / os.fsdecode(name[1:])
    folder.mkdir(parents=True)
    for file, text in (("memory.max", "100\n"), ("memory.current", "90\n"), ("memory.stat", "inactive_file 30\n")):
        (folder / file).write_text(text, encoding="ascii")
    assert memory.available_memory_fraction(system) == pytest.approx(0.4)


@pytest.mark.parametrize(("left", "times"), [(0.49, 1), (0.5, 0)])
def test_memory_is_given_back_where_less_than_half_is_left(monkeypatch: pytest.MonkeyPatch, left: float, times: int):
    calls = []
    monkeypatch.setattr(memory, "available_memory_fraction", lambda: left)
    monkeypatch.setattr(memory, "release_unused_memory", lambda: calls.append("back"))
    memory.release_unused_memory_if_low()
    assert len(calls) == times


# A cycle with a large block, a file that is removed at the exit, and what is registered for it.
ENDING = """
import atexit, sys, tempfile
from davylamp import cli, memory

class Knot:
    def __del__(self):
        print("searched for cycles")

folder = tempfile.TemporaryDirectory()
knot = Knot()
knot.itself = knot
print(folder.name)
atexit.register(print, "registered")
sys.argv = ["davylamp", "--version"]
cli.main()
"""


def test_a_command_that_ends_runs_what_is_registered_and_looks_for_no_cycles():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", ENDING], capture_output=True, text=True, check=True)
    folder, version, *rest = done.stdout.splitlines()
    assert version.startswith("davylamp ")
    assert rest == ["registered"]
    assert not Path(folder).exists()
