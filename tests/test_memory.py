"""`memory.keep_freed_memory`: what the process asks the system for, counted by the system itself."""

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
from davylamp.memory import give_memory_back, keep_freed_memory

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
give_memory_back()
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


def test_the_verbs_keep_it(tmp_path):
    outcome = subprocess.run([sys.executable, "-c", VERBS], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert outcome.stdout.split() == ["1", "1", "1"]


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
