"""A folder is read once, whatever is made of it: every file at most once, and every record that is needed."""

from collections import Counter

import pytest

from davylamp.engine import load
from davylamp.engine.attack_run import AttackRun
from davylamp.engine.checks.check_folder import check_folder
from davylamp.engine.store import store as store_module
from davylamp.engine.store.results import read_outcomes
from davylamp.engine.tables.defence_table import build_defence
from davylamp.engine.tables.metric_matrix import build_matrix
from davylamp.engine.tables.table import build_table
from davylamp.engine.tables.transfer_table import build_transfer
from davylamp.report.page.build import build_differences, build_report
from davylamp.tools.speed.synthetic_results import write_results

MODELS = ("model-a", "model-b")
USES = {
    "report": (lambda folder: build_report(folder, bootstrap=20), {"clean", "cells", "transfer"}),
    "table": (lambda folder: build_table(folder, bootstrap=20), {"clean", "cells", "transfer"}),
    "transfer": (lambda folder: build_transfer(folder, bootstrap=0), {"clean", "cells", "transfer"}),
    "check": (check_folder, {"clean", "cells", "transfer"}),
    "rank": (load, {"cells"}),
    "rank by metrics": (lambda folder: build_matrix(folder, ["CA", "MR", "AMD"]), {"clean", "cells"}),
}


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    """Two models whose examples were tested on each other."""
    folder = tmp_path_factory.mktemp("reads") / "results"
    store = write_results(folder, models=MODELS, attacks=("art:pgd", "foolbox:pgd"), images=20, classes=5, side=32)
    subjects = {record.meta["key"]: record.meta["subject"] for _, record in store.read_all("clean")}
    for _, record in list(store.read_all("cells")):
        cell = AttackRun.from_record(record.meta)
        for key, subject in subjects.items():
            if key != cell.subject.key:
                table = record.table.select(["index", "label", "adv_predicted"])
                store.write("transfer", f"{cell.key}-{key}", table, {**record.meta, "subject": subject})
    return folder


@pytest.fixture
def reads(monkeypatch):
    """How often each record was read."""
    counts, read_whole = Counter(), store_module.read_regular_file

    def count(path, *rest):
        counts[f"{path.parent.name}/{path.name}"] += path.suffix == ".parquet"
        return read_whole(path, *rest)

    monkeypatch.setattr(store_module, "read_regular_file", count)
    return counts


@pytest.mark.parametrize("use", USES)
def test_every_record_is_read_once(tested, reads, use):
    make, kinds = USES[use]
    make(tested)
    records = {f"{path.parent.name}/{path.name}" for kind in kinds for path in (tested / kind).iterdir()}
    assert {name for name, number in reads.items() if number} == records
    assert {reads[name] for name in records} == {1}


def test_a_defence_reads_what_both_models_are_about_once(tested, reads):
    build_defence(tested, *MODELS, bootstrap=20)
    names = {f"{path.parent.name}/{path.name}" for kind in ("clean", "cells") for path in (tested / kind).iterdir()}
    assert names <= {name for name, number in reads.items() if number == 1}
    assert {number for number in reads.values() if number} == {1}


def test_two_folders_are_read_once_each(tested, reads):
    build_differences(tested, tested)
    assert {reads[f"cells/{path.name}"] for path in (tested / "cells").iterdir()} == {2}


def test_transfers_that_were_left_out_are_read_when_they_are_needed(tested):
    outcomes = read_outcomes(tested)
    assert outcomes.transfers is None
    (table,) = build_transfer(outcomes, bootstrap=0).tables
    assert table.models == MODELS
    assert repr(table) == repr(build_transfer(tested, bootstrap=0).tables[0])
