"""What every command says of the golden corpus, number by number; and its evaluations again, record by record."""

import json
import math

import numpy as np
import pytest

import davylamp
from davylamp.engine import ResultsStore

from . import corpus

PASSING = {"seconds", "created", "written", "version", "versions", "folder", "out", "path"}  # what no number hangs on
WORDS = {"load(FOLDER)": ("seconds",), "report FOLDER": ("provenance-title",)}
SAMPLED = 0.02  # of an ability: what the chains of another processor may come to
ROUNDED = 1e-6  # of a number: in another order of the same sums
_TODAYS = ("key", "version", "torch")
_TIMES = ("seconds", "attack_seconds", "fit_seconds")


def differences(now, stored, about="", rounded=ROUNDED):
    """Where two documents differ: in numbers, names and shape, not in sentences."""
    if isinstance(stored, dict) and isinstance(now, dict):
        names = {*now, *stored} - PASSING
        return [
            line
            for name in sorted(names)
            for line in (
                differences(now[name], stored[name], f"{about}/{name}", rounded)
                if name in now and name in stored
                else [f"{about}/{name}: only {'now' if name in now else 'stored'}"]
            )
        ]
    if isinstance(stored, list) and isinstance(now, list):
        if len(now) != len(stored):
            return [f"{about}: {len(now)} now, {len(stored)} stored"]
        pairs = enumerate(zip(now, stored, strict=True))
        return [line for place, pair in pairs for line in differences(*pair, f"{about}/{place}", rounded)]
    if isinstance(stored, str) and isinstance(now, str) and " " in stored:
        return []
    if isinstance(stored, float) and isinstance(now, (int, float)):
        same = math.isclose(now, stored, rel_tol=rounded, abs_tol=rounded) or (math.isnan(now) and math.isnan(stored))
        return [] if same else [f"{about}: {now} now, {stored} stored"]
    return [] if now == stored else [f"{about}: {now!r} now, {stored!r} stored"]


@pytest.fixture
def place(tmp_path):
    corpus.copy_inputs(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", corpus.MADE)
def test_every_command_says_the_same_of_a_stored_folder(name, place):
    stored = json.loads((corpus.EXPECTED / f"{name}.json").read_text(encoding="utf-8"))
    corpus.unpack(name, place)
    now = json.loads(json.dumps(corpus.read(name, place)))
    assert now.keys() == stored.keys()
    lines = []
    for command, document in stored.items():
        is_sampled = command.startswith("rank") and "--method" not in command
        lines += differences(now[command], document, command, SAMPLED if is_sampled else ROUNDED)
    assert lines == []


@pytest.mark.parametrize("name", ["plain", "targeted", "random", "defence"])
def test_python_ranks_as_the_command_does(name, place):
    stored = json.loads((corpus.EXPECTED / f"{name}.json").read_text(encoding="utf-8"))
    ranking = davylamp.rank(corpus.unpack(name, place), scoring="mean")
    rows = {row["subject"]: row for row in stored["rank FOLDER --method mean"]["document"]["rows"]}
    assert set(ranking.subjects) == set(rows)
    for subject, score in zip(ranking.subjects, ranking.score, strict=True):
        assert score == pytest.approx(rows[subject]["score"])


@pytest.mark.parametrize("name", corpus.AGAIN)
def test_an_evaluation_gives_the_same_records_again(name, place, tmp_path_factory):
    """Bit by bit where the clean logits are the same ones; on other processors but for two images in a run."""
    stored = _records(corpus.unpack(name, tmp_path_factory.mktemp("stored")))
    now = _records(corpus.make(name, place))
    assert now.keys() == stored.keys()
    exactly = name != "labels-only" and all(
        repr(now[about]) == repr(columns) for about, columns in stored.items() if about.startswith('["clean"')
    )
    lines = []
    for about, columns in stored.items():
        assert now[about].keys() == columns.keys(), about
        for column, values in columns.items():
            others = _others(now[about][column], values, exactly=exactly)
            if others > (0 if exactly else 2):
                lines.append(f"{about}, {column}: {others} of {len(values)} images")
    assert lines == []


def _records(folder):
    """Columns by what each record is about, without what may be another next time: digests and times."""
    store, known = ResultsStore(folder, create=False), {}
    for kind in ("clean", "cells", "transfer", "detections", "corruption"):
        if not (folder / kind).is_dir():
            continue
        for _, record in store.read_all(kind):
            meta = record.meta
            about = json.dumps([kind, meta["status"], _plain(meta.get("spec")), _plain(meta.get("subject"))])
            names = [name for name in record.table.column_names if name not in _TIMES]
            known.setdefault(about, {name: record.table[name].to_pylist() for name in names})
    return known


def _plain(spec):
    """What a run is, without the digests of models and images."""
    if isinstance(spec, dict):
        return {
            name: _plain(value) for name, value in sorted(spec.items()) if "digest" not in name and name not in _TODAYS
        }
    return spec


def _others(now, stored, *, exactly):
    """In how many rows two columns differ."""
    assert len(now) == len(stored)
    if exactly:
        return sum(repr(one) != repr(other) for one, other in zip(now, stored, strict=True))  # a NaN is one
    return sum(not _near(one, other) for one, other in zip(now, stored, strict=True))


def _near(one, other):
    if isinstance(one, (list, float)):
        return np.allclose(np.float64(one), np.float64(other), rtol=1e-3, atol=1e-3, equal_nan=True)
    return one == other
