"""A folder read by its files' headers, or column by column, says what reading all of it says."""

import io
import json
import pickle
import shutil
import zipfile
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from davylamp.engine import load
from davylamp.engine.attack_run import AttackRun
from davylamp.engine.store import checksummed, derived_columns, stored_columns
from davylamp.engine.store import store as store_module
from davylamp.engine.store.checksummed import DamagedRecordError, read_columns, shape_of_file, shape_of_table
from davylamp.engine.store.columns import logits_of
from davylamp.engine.store.data_frames import OUTCOMES, load_outcomes
from davylamp.engine.store.image_results import ImageResults
from davylamp.engine.store.plan_records import survey_folder, write_plan
from davylamp.engine.store.record_validation import NEEDED, read_records, record_error
from davylamp.engine.store.results import read_outcomes
from davylamp.engine.store.store import ResultsStore
from davylamp.engine.store.stored_columns import HEAVY, join_columns
from davylamp.engine.tables.table import build_table
from davylamp.errors import Unavailable
from davylamp.scoring import build_responses
from davylamp.tools.speed.synthetic_results import TWENTY, write_results

READS_MISSING_VECTORS = int(pa.__version__.partition(".")[0]) >= 26  # the last that runs on Python 3.10 does not
MODELS = ("model-02", "model-03")
CELLS = len(MODELS) * len(TWENTY)


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory):
    """40 cells."""
    path = tmp_path_factory.mktemp("many") / "results"
    write_results(path, models=MODELS, attacks=TWENTY, images=12, classes=4, side=8, pooled=True)
    return path


@pytest.fixture
def folder(synthetic, tmp_path):
    """A copy that a test may change."""
    shutil.copytree(synthetic, tmp_path / "results")
    return tmp_path / "results"


def rewrite(store, key, change, **meta):
    record = store.read("cells", key)
    store.remove("cells", key)
    store.write("cells", key, change(record.table), {**record.meta, **meta})


def gap_in(name):
    """A gap in the first row of a column."""

    def change(table):
        place, column = table.column_names.index(name), table[name].combine_chunks()
        mask = pa.array([True] + [False] * (len(table) - 1))
        return table.set_column(place, name, pa.array(column.to_pylist(), column.type, mask=np.asarray(mask)))

    return change


CHANGES = {
    "gap in a needed column": gap_in("success"),
    "gap in a number": gap_in("distance"),
    "gap in logits": gap_in("adv_logits"),
    "gap that may be": gap_in("target"),
    "no column": lambda table: table.drop_columns(["violated"]),
    "no rows": lambda table: table.slice(0, 0),
    "a row less": lambda table: table.slice(1),
    "another type": lambda table: table.set_column(0, "index", pa.array(["0"] * len(table))),
    "a column of nothing": lambda table: table.append_column("none", pa.nulls(len(table))),
    "a name with dots": lambda table: table.append_column("my.py:size", table["l2"]).append_column("my", table["l1"]),
    "a flag with a gap": lambda table: table.append_column("flag.of", pa.array([None, *[True] * (len(table) - 1)])),
}


@pytest.mark.parametrize("statistics", [True, False])
def test_headers_say_what_the_whole_files_say(folder, monkeypatch, statistics):
    """Failed and unfinished cells, a plan, records with faults of every kind, with and without statistics."""
    store = ResultsStore(folder)
    monkeypatch.setattr(checksummed.pq, "ParquetWriter", partial(pq.ParquetWriter, write_statistics=statistics))
    keys = iter(store.keys("cells"))
    changes = dict(CHANGES)
    if not READS_MISSING_VECTORS:  # then what is read whole is damaged for another reason
        del changes["gap in logits"]
    for change in changes.values():
        rewrite(store, next(keys), change)
    for _ in range(9):
        rewrite(store, next(keys), lambda _: pa.table({}), status="failed", reason="no luck")
    waiting = []
    for place in range(9):
        key = next(keys)
        record = store.read("cells", key)
        store.remove("cells", key)
        waiting.append(AttackRun.from_record(record.meta))
        if place % 2:
            store.write("parts", f"{key}-0", record.table.slice(0, 6), record.meta)
            store.write("parts", f"{key}-1", record.table.slice(6), record.meta)
    write_plan(store, waiting)
    fast, slow = (survey_folder(folder, headers=headers) for headers in (True, False))
    assert fast == slow
    faults = len(changes) - 3  # not a gap that may be, a column of nothing and names with dots
    assert len(fast.damaged) == faults
    assert len(fast.states) == CELLS - faults
    assert {state.status for state in fast.states} == {"done", "failed", "waiting"}


def test_headers_of_a_folder_of_0_1_0_say_the_same(tmp_path):
    with zipfile.ZipFile(Path(__file__).parent / "results_0_1_0.zip") as archive:
        archive.extractall(tmp_path)
    (where,) = {path.parent for path in tmp_path.rglob("davylamp.json")}
    fast, slow = (survey_folder(where, headers=headers) for headers in (True, False))
    assert fast == slow
    assert fast.states
    assert not fast.damaged


def test_two_files_of_a_key_are_held_against_each_other_whole(folder):
    store = ResultsStore(folder)
    first, second = store.keys("cells")[:2]
    copies = {key: store.path("cells", key).read_bytes() for key in (first, second)}
    old = {key: store.path("cells", key) for key in (first, second)}
    rewrite(store, first, lambda table: table.set_column(5, "success", pc.invert(table["success"])))
    rewrite(store, second, lambda table: table, written="2030-01-01")
    for key, path in old.items():  # as copying folders together leaves them: none says that it replaces the other
        path.with_name(f"{key}.000000000000.parquet").write_bytes(copies[key])
    fast, slow = (survey_folder(folder, headers=headers) for headers in (True, False))
    assert fast == slow
    (line,) = fast.damaged
    assert "they differ in success" in line
    assert len(fast.states) == CELLS - 1


def test_an_altered_byte_is_found_by_all_that_reads_numbers_and_by_verify(folder, run):
    path = sorted((folder / "cells").iterdir())[0]
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 1
    path.write_bytes(content)
    assert survey_folder(folder).damaged == []
    (line,) = survey_folder(folder, headers=False).damaged
    assert "the checksum of the record is wrong" in line
    assert read_outcomes(folder).damaged == (line,)
    assert load_outcomes(folder).attrs["damaged"] == [line]
    assert json.loads(run("status", folder, "--json")[1])["damaged"] == []
    assert json.loads(run("status", folder, "--json", "--verify")[1])["damaged"] == [line]
    other = sorted((folder / "cells").iterdir())[1]
    pq.write_table(pq.read_table(other), other)  # a plain file of Parquet is no record
    (line,) = survey_folder(folder).damaged
    assert "the checksum of the record is wrong" in line


def test_cells_of_some_models_alone_are_read(folder):
    """What `evaluate` ends with: an altered byte in a cell of another model goes unnoticed, its numbers stay out."""
    whole = read_outcomes(folder)
    path = next(
        whole.store.path("cells", each.cell.key) for each in whole.done if each.cell.subject.model == "model-02"
    )
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 1
    path.write_bytes(content)
    some = read_outcomes(folder, ["OTR"], models=["model-03"])
    expected = [each.cell.key for each in whole.done if each.cell.subject.model == "model-03"]
    assert [each.cell.key for each in some.done] == expected
    assert some.damaged == ()
    assert len(read_outcomes(folder).damaged) == 1


TABLES = {
    "flat": pa.table({"a": [1, None, 3], "b": [True, False, None], "c": ["x", "", None]}),
    "no gaps": pa.table({"a": [1, 2, 3], "b": [[1.0], [2.0, 3.0], [4.0]]}),
    "lists": pa.table({"a": [[1], None, []], "b": [[None], [1], [2]], "c": [[[1.0]], None, [[None]]]}),
    "vectors": pa.table({"a": pa.array([[1.0, 2.0], None, [3.0, None]], pa.list_(pa.float32(), 2)), "b": [1, 2, None]}),
    "structs": pa.table({"a": [{"b": 1, "c": [None]}, None, {"b": None, "c": []}], "a.b": [None, 5, None]}),
    "maps": pa.table({"a": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())), "b": [None, 1, 1]}),
    "nothing": pa.table({"a": pa.nulls(3), "b": pa.nulls(3, pa.list_(pa.list_(pa.float32())))}),
    "dots": pa.table({"my": [1, None, 3], "my.py:f": [None, None, 1.5], "my.py": ["a", "b", None]}),
    "empty": pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.list_(pa.float32(), 3))}),
}  # fmt: skip


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("rows", [1, 100])
@pytest.mark.parametrize("name", TABLES)
def test_the_shape_of_a_file_is_that_of_its_table(name, rows, statistics):
    table, sink = TABLES[name], io.BytesIO()
    pq.write_table(table, sink, row_group_size=rows, write_statistics=statistics)
    file, whole = pq.ParquetFile(io.BytesIO(sink.getvalue())), shape_of_table(table)
    shape = shape_of_file(file, lambda: nullcontext(io.BytesIO(sink.getvalue())))
    assert shape.schema == whole.schema
    assert shape.rows == whole.rows == len(table)
    places = range(len(table.schema))
    if name == "vectors" and not READS_MISSING_VECTORS:
        assert all(map(shape.gaps, places))
        return
    assert [*map(shape.gaps, places)] == [*map(whole.gaps, places)] == [column.null_count for column in table.columns]
    for column in table.column_names:
        (read,) = read_columns(file, [column, "not there"]).columns
        assert read.equals(table[column]) or read.to_pylist() == table[column].to_pylist()
        assert read_columns(file, [column]).column_names == [column]
    assert read_columns(file, []).column_names == read_columns(file, ["not there"]).column_names == []
    assert read_columns(file, None).column_names == table.column_names


def test_columns_that_are_read_when_asked_for_are_those_of_the_record(synthetic):
    outcomes = read_outcomes(synthetic)
    records = dict(read_records(outcomes.store, "cells"))
    assert len(outcomes.done) == len(records) == CELLS
    for outcome in outcomes.done[::7]:
        table = records[outcome.cell.key].table
        names = [name for name in table.column_names if name not in HEAVY]
        assert list(outcome.columns) == names
        assert len(outcome.columns) == len(names)
        for name in names:
            np.testing.assert_array_equal(outcome.columns[name], table[name].to_numpy(), strict=True)
        assert "adv_logits" not in outcome.columns
        with pytest.raises(KeyError):
            outcome.columns["adv_logits"]
        held = outcome.columns.holding(["AMD", "nothing of that name"])
        np.testing.assert_array_equal(held["AMD"], table["AMD"].to_numpy())
    one, other = outcomes.done[0].columns, outcomes.done[-1].columns
    assert one["image"] is other["image"]  # held once


def test_columns_in_place_of_others_are_seen_and_nothing_is_read_for_them(synthetic, monkeypatch):
    columns = read_outcomes(synthetic).done[0].columns
    joined = join_columns(columns, {"MR": np.ones(12), "further": np.zeros(12)})
    assert list(joined) == [*columns, "further"]
    monkeypatch.setattr(type(columns), "_read", None)
    assert joined["MR"].sum() == 12
    assert joined["label"] is columns["label"]
    assert set(NEEDED) <= set(columns)


def test_a_file_that_changes_after_it_was_checked_is_not_read(folder):
    outcomes = read_outcomes(folder)
    first, second = outcomes.done[:2]
    path = outcomes.store.path("cells", first.cell.key)
    other = outcomes.store.path("cells", second.cell.key)
    path.write_bytes(other.read_bytes())
    other.unlink()
    with pytest.raises(Unavailable, match=r"was changed while it was read"):
        first.columns["AMD"]
    with pytest.raises(Unavailable, match="could not read"):
        second.columns["AMD"]
    assert len(first.columns["label"]) == 12


def test_rows_with_categories_are_those_of_load(synthetic):
    plain, compact = load(synthetic, columns=OUTCOMES), load_outcomes(synthetic)
    assert sorted(compact) == sorted(["target", *(name for name in plain if name != "violations")])
    assert compact.attrs == plain.attrs
    for name in compact.drop(columns="target"):
        ours, theirs = compact[name].to_numpy(), plain[name].to_numpy()
        assert ((ours == theirs) | (pd.isna(ours) & pd.isna(theirs))).all(), name
    assert compact.memory_usage(deep=True).sum() < plain.memory_usage(deep=True).sum() / 4


def test_a_reason_why_a_result_is_invalid_is_added_in_one_place(synthetic, monkeypatch):
    """Say that nobody could recognise image 3 any more: tables, rankings and verdicts follow."""
    outcomes = read_outcomes(synthetic)
    rows = build_table(synthetic, by="models", metrics=["RA"], bootstrap=0).rows
    before = {row.labels["model"]: row.metrics["RA"].value for row in rows}

    def invalid(results):
        return np.asarray(results.columns["violated"], bool) | (results.columns["index"] == 3)

    monkeypatch.setattr(ImageResults, "invalid", property(invalid))
    rows = build_table(synthetic, by="models", metrics=["RA"], bootstrap=0).rows
    after = {row.labels["model"]: row.metrics["RA"].value for row in rows}
    assert all(after[model] <= before[model] for model in before)
    frame = load_outcomes(synthetic)
    assert frame.loc[frame["index"] == 3, "violated"].all()
    assert not any(each.usable[3] for each in outcomes.done)
    assert all(each.results.fooled_at_most[3] == 1 for each in outcomes.done if each.results.attacked[3])


@pytest.mark.parametrize(
    ("subjects", "per"), [("models", "implementation"), ("attacks", "attack"), ("implementations", "attack")]
)
def test_a_ranking_takes_categories_for_the_texts_that_they_are(synthetic, subjects, per):
    ours, theirs = (
        build_responses(frame, subjects, per=per, unequal="keep")
        for frame in (load_outcomes(synthetic), load(synthetic))
    )
    np.testing.assert_array_equal(ours.values, theirs.values)
    assert ours[1:] == theirs[1:]


def test_a_damaged_header_is_one_line(folder):
    for place, path in enumerate(sorted((folder / "cells").iterdir())[:20]):
        content = bytearray(path.read_bytes())
        content[-20 - 97 * place] ^= 255
        path.write_bytes(content)
    survey = survey_folder(folder)
    assert len(survey.states) + len(survey.damaged) == CELLS
    assert all(
        isinstance(record, DamagedRecordError) or record.meta for _, record in ResultsStore(folder).read_all("cells")
    )


@pytest.mark.parametrize("room", [2**27, 500, 0])
def test_columns_are_read_once_while_there_is_room_and_say_the_same_without(folder, monkeypatch, room):
    """500 bytes hold five columns of 12 numbers; the sixth is read each time that it is asked for."""
    names = ("AMD", "AED", "ALD", "APCR", "SSIM", "ALMS", "ADMS", "ACE", "NTE")
    whole = read_outcomes(folder).done[0]
    known = {name: whole.columns[name].copy() for name in names if name in whole.columns}
    assert len(known) > 5
    opened = []
    read_more = store_module._RecordFile.more
    monkeypatch.setattr(store_module._RecordFile, "more", lambda *given: opened.append(given[-1]) or read_more(*given))
    monkeypatch.setattr(stored_columns, "_ROOM", room)
    columns = read_outcomes(folder).done[0].columns
    for _ in range(3):
        for name, values in known.items():
            assert np.array_equal(columns[name], values, equal_nan=True)
    held = min(len(known), room // known["AED"].nbytes)
    assert len(opened) == held + 3 * (len(known) - held)


def test_logits_are_read_where_a_symbol_needs_them_or_when_somebody_asks(folder, monkeypatch):
    """Images without a finite logit are the same ones either way, and none once the file is another one."""
    store = ResultsStore(folder)
    key, other, *_ = store.keys("cells")

    def silence(table):
        logits = np.array(table["adv_logits"].to_pylist(), np.float32)
        logits[[2, 7], 1] = np.nan, np.inf
        place = table.column_names.index("adv_logits")
        return table.set_column(place, "adv_logits", pa.FixedSizeListArray.from_arrays(pa.array(logits.ravel()), 4))

    rewrite(store, key, silence)
    asked, real = [], store_module.read_columns
    for module in (store_module, checksummed):
        monkeypatch.setattr(module, "read_columns", lambda file, names: asked.append(names) or real(file, names))
    eager = {each.cell.key: each for each in read_outcomes(folder, ["FR@1"]).done}
    assert sum("adv_logits" in (names or ()) for names in asked) == CELLS
    asked.clear()
    outcomes = {each.cell.key: each for each in read_outcomes(folder, ["MR"]).done}
    assert not any("adv_logits" in (names or ()) for names in asked)
    for name in (key, other):
        assert (outcomes[name].non_finite == eager[name].non_finite).all()
    assert np.flatnonzero(outcomes[key].non_finite).tolist() == [2, 7]
    assert not outcomes[other].non_finite.any()
    (sent,) = (each for each in pickle.loads(pickle.dumps(read_outcomes(folder).done)) if each.cell.key == key)
    assert np.flatnonzero(sent.non_finite).tolist() == [2, 7]
    (changed,) = (each for each in read_outcomes(folder).done if each.cell.key == key)
    rewrite(store, key, lambda table: table)
    with pytest.raises(Unavailable, match="read"):
        _ = changed.non_finite


def test_the_rate_that_records_have_is_the_one_of_their_logits(small_folder, tmp_path, monkeypatch):
    """By k = 5 of today's records no logits are read, and by those of older rules the logits count."""
    asked, real = [], store_module.read_columns
    for module in (store_module, checksummed):
        monkeypatch.setattr(module, "read_columns", lambda file, names: asked.append(names) or real(file, names))
    rates = {}
    for symbols in (["FR@5"], ["FR@5", "FR@4"]):
        outcomes = read_outcomes(small_folder, symbols)
        rates[len(symbols)] = [each.columns["FR@5"] for each in outcomes.done]
        assert any("adv_logits" in (names or ()) for names in asked) == (len(symbols) == 2)
    for outcome, stored in zip(outcomes.done, rates[1], strict=True):
        logits, answers = outcomes.clean[outcome.cell.subject.key].logits, outcome.adv_logits
        if answers is None:
            answers = logits_of(outcomes.store.read("cells", outcome.cell.key).table, "adv_logits")
        place = (answers > answers.gather(1, logits.argmax(1, keepdim=True))).sum(1)  # of the clean prediction, from 0
        np.testing.assert_array_equal(stored, np.where(outcome.usable, (place >= 5).numpy(), np.nan))
    copy = shutil.copytree(small_folder, tmp_path / "old")
    store = ResultsStore(copy)
    key = store.keys("cells")[0]

    def forge(table):
        return table.set_column(table.column_names.index("FR@K"), "FR@K", pa.array(np.full(len(table), 0.25)))

    rewrite(store, key, forge)
    (forged,) = (each for each in read_outcomes(copy, ["FR@5"]).done if each.cell.key == key)
    assert (forged.columns["FR@5"] == 0.25).all()  # it is what is read
    monkeypatch.setattr(derived_columns, "RULES", 99)
    (old,) = (each for each in read_outcomes(copy, ["FR@5"]).done if each.cell.key == key)
    np.testing.assert_array_equal(old.columns["FR@5"], rates[2][[each.cell.key for each in outcomes.done].index(key)])


def test_pictures_have_their_confidence_whether_logits_were_read_or_not(small_folder):
    """Only the first rows of the logits are."""
    few, all_of_them = (
        read_outcomes(small_folder, symbols, examples=True).done for symbols in (["FR@5"], ["FR@5", "FR@1"])
    )
    assert any(each.examples for each in few)
    for one, other in zip(few, all_of_them, strict=True):
        assert [each.confidence for each in one.examples] == [each.confidence for each in other.examples]
        answers = logits_of(ResultsStore(small_folder).read("cells", one.cell.key).table, "adv_logits").softmax(1)
        expected = [float(answers[each.place, each.predicted]) for each in one.examples]
        assert [each.confidence for each in one.examples] == pytest.approx(expected, abs=1e-7)


def test_a_column_that_cannot_be_read_where_its_footer_is_silent_is_a_damage(folder):
    """Arrow says so by an OSError, which is no error of Arrow's."""
    store = ResultsStore(folder)
    key = store.keys("cells")[0]
    (record,) = (known for name, known in store.read_all("cells", headers=True) if name == key)
    assert record_error("cells", key, record) == ""

    def unreadable(_):
        raise OSError("Corrupt snappy compressed data.")

    damaged = replace(record, of_file=replace(record.shape, gaps=unreadable))
    assert record_error("cells", key, damaged) == "its columns cannot be read: Corrupt snappy compressed data."
