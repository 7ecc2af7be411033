"""Whatever is handed to a command, it ends with an exit code and one line that says why: the first tries of the fuzzer.

`python -m davylamp.tools.fuzz.explore --seconds 600` goes on from here, with other random numbers.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from davylamp.tools.fuzz.explore import attempt
from davylamp.tools.fuzz.fixture import Answer, build_world, call, faults
from davylamp.tools.fuzz.folders import folders
from davylamp.tools.fuzz.inputs import arrays, configs, lists, options


def tries(count):
    """The same tries every time, as many as the suite can spare."""
    return settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # smaller examples are for those who mend: a hanging one would be tried for hours
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    return build_world(tmp_path_factory.mktemp("fuzz") / "world")


@tries(20)
@given(case=options())
def test_options(world, case):
    assert attempt(world, case) == []


@tries(20)
@given(case=configs())
def test_toml(world, case):
    assert attempt(world, case) == []


@tries(30)
@given(case=arrays())
def test_arrays(world, case):
    assert attempt(world, case) == []


@tries(20)
@given(case=lists())
def test_lists_of_images(world, case):
    assert attempt(world, case) == []


@tries(30)
@given(case=folders(resealed=False))
def test_results_folders(world, case):
    assert attempt(world, case) == []


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["status", "x"], Answer(70, "", "", "Traceback ...\nKeyError: 'CA'")),
        (["status", "x"], Answer(0, "", "davylamp: expected ...\n", "")),
        (["status", "x"], Answer(1, "", "", "")),
        (["status", "x"], Answer(1, "", "davylamp: one\ndavylamp: two\n", "")),
        (["status", "x"], Answer(2, "", "", "")),
        (["status", "x"], Answer(3, "", "", "")),
        (["status", "x", "--json"], Answer(0, "{'a': 1}", "", "")),
        (["status", "x", "--json"], Answer(0, '{"a": NaN}', "", "")),
        (["status", "x"], Answer(0, "\x1b[31mred", "", "")),
        (["status", "x"], Answer(0, "", "Traceback (most recent call last):\n", "")),
    ],
)
def test_the_fuzzer_sees_every_kind_of_fault(arguments, answer):
    assert faults(arguments, answer)
    assert faults(arguments, answer._replace(code=0, out="{}", err="", crash="")) == []


def test_what_leaves_a_command_is_caught_and_named(monkeypatch):
    monkeypatch.setattr("davylamp.cli.program", lambda: {}["deep inside"])
    (line,) = faults(["status"], call(["status"]))
    assert line.startswith("KeyError: 'deep inside'")


def test_a_long_double_is_the_same_bytes_each_time():
    from davylamp.tools.fuzz.inputs import without_padding

    numbers = np.random.default_rng(0).random((4, 3)).astype("g")
    dirty = bytearray(numbers.tobytes())
    for place in range(10, numbers.itemsize):
        dirty[place :: numbers.itemsize] = b"\x7f" * numbers.size
    assert np.array_equal(without_padding(numbers), numbers)
    assert without_padding(np.frombuffer(dirty, "g").reshape(4, 3)).tobytes() == without_padding(numbers).tobytes()
