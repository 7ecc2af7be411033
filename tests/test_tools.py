"""The scripts that measure davylamp itself, which are not in the wheel."""

import ast
import importlib
import pkgutil
from typing import Any

from torch import nn

from davylamp import benchmarks, tools
from davylamp.adapters import Classifier
from davylamp.tools.mutation.sample import break_at, places_of
from davylamp.tools.speed import batch_size


def test_every_script_can_be_imported():
    """The scripts that no test runs find what they import."""
    modules = [each.name for each in pkgutil.walk_packages(benchmarks.__path__, "davylamp.benchmarks.")]
    modules += [each.name for each in pkgutil.walk_packages(tools.__path__, "davylamp.tools.")]
    assert len(modules) > 60
    for name in modules:
        importlib.import_module(name)


def test_a_batch_grows_until_it_is_no_faster_or_the_memory_is_out(monkeypatch):
    class Limited(nn.Module):
        def forward(self, inputs):
            if len(inputs) > 8:
                raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
            return inputs.flatten(1)[:, :4]

    sizes = [size for size, _ in batch_size.measure_batches(Classifier(Limited()), 4, 4)]
    assert sizes == [1, 2, 4]
    seconds = {1: 1.0, 2: 1.0, 4: 1.9, 8: 3.8, 16: 4.0}  # passes a second: 1, 2, 2.1, 2.1
    monkeypatch.setattr(batch_size, "seconds_of_batch", lambda _, inputs: seconds[len(inputs)])
    speeds = dict(batch_size.measure_batches(Classifier(Limited()), 4, 16))
    assert speeds == {1: 1.0, 2: 2.0, 4: 4 / 1.9, 8: 8 / 3.8, 16: 4.0}
    assert batch_size.choose_size(speeds) == 16
    assert batch_size.choose_size({1: 1.0, 2: 2.0, 4: 2.08}) == 2
    seconds[16] = 7.7
    assert list(dict(batch_size.measure_batches(Classifier(Limited()), 4, 64))) == [1, 2, 4, 8, 16]
    monkeypatch.undo()
    monkeypatch.setattr(batch_size, "PATIENCE", 100)
    assert [size for size, _ in batch_size.measure_batches(Classifier(Limited()), 4, 64)] == [1, 2, 4, 8]


def test_a_place_is_broken_in_one_way_and_the_rest_of_the_file_stays():
    text = "def f(x: int = 3):\n    y = f'{x + 1} of'\n    return (\n        x < 2\n        and not x == 4\n    )\n"
    places = {place.broken: place for place in places_of("f.py", text)}
    whole = {"return None", "(x < 2 or not x == 4)", "(x <= 2)", "(x == 4)", "(x != 4)"}
    assert set(places) == {*whole, "(3)", "(4)", "(5)"}
    for place in places.values():
        changed = break_at(place, text)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))
        assert changed.splitlines()[1] == text.splitlines()[1]
    scope: dict[str, Any] = {}
    exec(break_at(places["(x <= 2)"], text), scope)
    assert (scope["f"](2), scope["f"](3)) == (True, False)
