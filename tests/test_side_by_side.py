"""The benchmark beside AttackBench: it runs where that is installed, and says what to install where it is not."""

import importlib.util
import sys
import types
from importlib.machinery import ModuleSpec

import pytest

from davylamp.errors import MissingLibrary
from davylamp.tools.attackbench import side_by_side, their_runner


def test_without_attackbench_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingLibrary, match="pip install --no-deps attackbenchlib"):
        their_runner.load_attackbench()


def test_every_row_of_ours_is_in_the_catalogue():
    from davylamp.adapters import IMPLEMENTATIONS

    for norm, rows in side_by_side.ROWS.items():
        for ours, _ in rows.values():
            assert not ours or norm in IMPLEMENTATIONS[ours].classes, ours


def test_both_programs_count_the_same_passes_and_find_the_same_without_the_clamp(monkeypatch, capsys):
    wandb = types.ModuleType("wandb")  # AttackBench imports it
    wandb.__dict__.update(Api=object, __spec__=ModuleSpec("wandb", None))
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    pytest.importorskip("attackbench")
    monkeypatch.setattr(sys, "argv", ["side_by_side", "--quick", "--norms", "l2"])
    side_by_side.main()
    out = capsys.readouterr().out
    (line,) = [line for line in out.splitlines() if line.startswith("| foolbox:ddn | 2")]
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert float(cells[5]) == pytest.approx(1, abs=1e-3)
    assert [float(cell) for cell in cells[6:9]] == [200, 200, 200]
    assert "davylamp: best" in out
