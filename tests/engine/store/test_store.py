"""What is written is read back bit for bit, and nothing else is ever taken for it."""

import errno
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from davylamp.engine import ResultsStore, evaluate, load
from davylamp.engine.store import store
from davylamp.engine.store.checksummed import seal_table
from davylamp.engine.store.plan_records import survey_folder
from davylamp.engine.store.store import DamagedRecordError
from davylamp.errors import StoreMismatch, Unavailable

META = {"key": "abc", "status": "done", "reason": "", "spec": {"epsilon": 4 / 255}}
# Subnormal, the smallest and the largest float32, both zeros, and what has no order.
FLOATS = np.array(
    [1e-45, 1.1754944e-38, 3.4028235e38, 0.1, -0.0, 0.0, math.nan, math.inf, -math.inf, 1 / 3], np.float32
)


@pytest.fixture
def table() -> pa.Table:
    """Ten rows of everything that records hold."""
    logits = np.stack([FLOATS, FLOATS[::-1]], 1)
    return pa.table(
        {
            "index": pa.array(range(10)),
            "image": pa.array([f"bild ü {i}" for i in range(10)]),
            "success": pa.array([True, False, None, True, True, False, False, True, None, True]),
            "target": pa.nulls(10, pa.int64()),
            "distance": pa.array(FLOATS.astype(np.float64)),
            "single": pa.array(FLOATS),
            "adv_logits": pa.FixedSizeListArray.from_arrays(pa.array(logits.reshape(-1)), 2),
            "cam": pa.array([[[0.5, 0.25], [1e-45, 0.0]], *[None] * 9], pa.list_(pa.list_(pa.float32()))),
            "picture": pa.array([b"\x89PNG\r\n\x00", *[None] * 9], pa.binary()),
        }
    )


@pytest.fixture
def written(tmp_path, table):
    """A store with one cell, and the cell's file."""
    folder = ResultsStore(tmp_path / "results")
    folder.write("cells", "abc", table, META)
    return folder, folder.path("cells", "abc")


def test_records_come_back_bit_for_bit(written, table):
    assert pq.read_table(written[1]).column_names == table.column_names  # any reader of Parquet takes the file
    record = written[0].read("cells", "abc")
    assert dict(record.meta) == META | {"format": 1}
    assert record.table.schema == table.schema
    for name in ("single", "distance"):
        ours, theirs = (np.asarray(one[name].combine_chunks()) for one in (record.table, table))
        assert ours.tobytes() == theirs.tobytes()
    ours, theirs = (one["adv_logits"].combine_chunks().flatten().to_numpy() for one in (record.table, table))
    assert ours.tobytes() == theirs.tobytes()
    exact = ["index", "image", "success", "target", "cam", "picture"]
    assert record.table.select(exact).equals(table.select(exact))


def test_every_flipped_byte_is_noticed(written, table):
    folder, path = written
    folder.write("cells", "abc", table.select(["index", "success"]), META)
    path = folder.path("cells", "abc")
    good = path.read_bytes()
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= 1 << place % 8
        path.write_bytes(bad)
        with pytest.raises(DamagedRecordError, match=r"abc\.\w+\.parquet is damaged"):
            folder.read("cells", "abc")


def test_a_file_cut_short_bytes_too_many_or_another_file_are_noticed(written, table):
    folder, path = written
    good, plain = path.read_bytes(), pa.BufferOutputStream()
    pq.write_table(table, plain)
    short = [good[:size] for size in (0, 1, 4, len(good) // 2, -8, -1)]
    for content in (*short, good + b"\0", good + good, b"PAR1" * 100, plain.getvalue().to_pybytes()):
        path.write_bytes(content)
        with pytest.raises(DamagedRecordError):
            folder.read("cells", "abc")


@pytest.mark.parametrize(
    ("kind", "key"), [("cells", "abd"), ("parts", "abc-0"), ("clean", "abc"), ("transfer", "abc-def")]
)
def test_a_file_under_another_name_is_noticed(written, kind, key):
    folder, path = written
    folder.path(kind, key).parent.mkdir(exist_ok=True)
    shutil.copy(path, folder.path(kind, key))
    with pytest.raises(DamagedRecordError, match="does not match its file name"):
        folder.read(kind, key)


def test_pieces_that_change_places_are_noticed(written, table):
    folder, _ = written
    folder.write("parts", "abc-0", table, META)
    folder.path("parts", "abc-0").rename(folder.path("parts", "abc-1"))
    with pytest.raises(DamagedRecordError):
        folder.read("parts", "abc-1")


def test_another_format_is_neither_read_nor_replaced(written, table):
    folder, path = written
    path.write_bytes(seal_table(table.replace_schema_metadata({"davylamp": json.dumps({**META, "format": 2})})))
    with pytest.raises(StoreMismatch, match="expected results of format 1, got 2"):
        folder.read("cells", "abc")
    assert path.is_file()


def test_a_folder_without_a_mark_or_inside_of_a_file_is_refused(tmp_path):
    with pytest.raises(Unavailable, match="expected a results folder"):
        ResultsStore(tmp_path, create=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="file"):
        ResultsStore(tmp_path / "file" / "results")


def test_a_file_that_may_not_be_read_is_not_taken_for_damaged(written, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(store, "read_regular_file", refuse)
    with pytest.raises(Unavailable, match=r"could not read .*Permission denied"):
        written[0].read("cells", "abc")


@pytest.mark.parametrize("failing", ["write_bytes", "replace", "acquire"])
def test_a_full_disk_is_one_clear_line_and_leaves_what_was_there(written, table, monkeypatch, failing):
    folder, path = written
    before = path.read_bytes()

    def fill(self, *arguments, **_):
        if failing == "write_bytes":
            with self.open("wb") as file:
                file.write(arguments[0][:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    said = "" if failing == "acquire" else "could not write .*"
    monkeypatch.setattr(store.FileLock if failing == "acquire" else Path, failing, fill)
    with pytest.raises(Unavailable, match=f"{said}No space left on device"):
        folder.claim("abc") if failing == "acquire" else folder.write("cells", "abc", table.slice(3), META)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_work_is_claimed_once_until_it_is_released(written):
    folder, other = written[0], ResultsStore(written[0].folder)
    lock = folder.claim("abc-0")
    assert lock is not None
    assert other.claim("abc-0") is None
    folder.release("abc-0", lock)
    again = other.claim("abc-0")
    assert again is not None
    (folder.folder / "locks" / "abc-1.lock").touch()  # as a killed process leaves it
    assert folder.claimed() == other.claimed() == {"abc-0"}
    assert other.claim("abc-0") is None  # looking takes and gives nothing
    other.release("abc-0", again)
    (folder.folder / "locks" / "abc-1.lock").unlink()
    assert folder.claimed() == set()
    assert list((folder.folder / "locks").iterdir()) == []


def test_drafts_of_killed_runs_are_never_results(written, table):
    folder, path = written
    for name in (".0123.parquet", ".half.parquet"):
        shutil.copy(path, path.with_name(name))
    assert folder.keys("cells") == ["abc"]


def test_images_come_back_and_damaged_ones_are_removed(written):
    folder, _ = written
    images = np.random.default_rng(0).random((2, 3, 4, 4), np.float32)
    folder.write_images("abc-0", {"inputs": images})
    assert folder.read_images("abc-0").tobytes() == images.tobytes()
    path = folder.images_path("abc-0")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(Unavailable, match=r"removed the damaged file"):
        folder.read_images("abc-0")
    assert not path.exists()


def test_an_evaluation_reports_damage_and_computes_only_that_again(small_plan, small_folder, tmp_path):
    folder = tmp_path / "results"
    shutil.copytree(small_folder, folder)
    one, two, three = sorted(folder.glob("cells/*.parquet"))
    kept, content = three.read_bytes(), bytearray(one.read_bytes())
    content[len(content) // 3] ^= 16
    one.write_bytes(content)
    two.write_bytes(two.read_bytes()[:-100])
    assert len(survey_folder(folder, headers=False).damaged) == 2
    assert len(load(folder).attrs["damaged"]) == 2
    summary = evaluate(small_plan, ResultsStore(folder))
    assert (summary.done, summary.kept) == (2, 1)
    assert sorted(line.split()[0] for line in summary.damaged) == [str(one), str(two)]
    assert three.read_bytes() == kept
    assert survey_folder(folder, headers=False).damaged == []
    ours, theirs = (load(where).drop(columns="seconds") for where in (folder, small_folder))
    assert ours.equals(theirs)


def test_two_cells_that_change_places_are_computed_again(small_plan, small_folder, tmp_path):
    folder = tmp_path / "results"
    shutil.copytree(small_folder, folder)
    one, two, _ = sorted(folder.glob("cells/*.parquet"))
    content = one.read_bytes()
    two.rename(one)
    two.write_bytes(content)
    assert len(load(folder).attrs["damaged"]) == 2
    assert len(evaluate(small_plan, ResultsStore(folder)).damaged) == 2
    assert survey_folder(folder, headers=False).damaged == []


def test_a_file_is_not_a_results_folder(tmp_path):
    (tmp_path / "comparison.json").write_text("{}")
    with pytest.raises(Unavailable, match=r"got the file .*comparison\.json"):
        ResultsStore(tmp_path / "comparison.json", create=False)
