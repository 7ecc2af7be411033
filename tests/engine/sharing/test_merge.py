"""Folders put together: the table of the whole is the tables of the parts, and no disagreement is settled silently."""

import json
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest
import torch

from davylamp.adapters.models.remote.answer_cache import FILE, AnswerCache
from davylamp.engine import ResultsStore, build_table, load
from davylamp.engine.sharing import merge
from davylamp.engine.sharing.gather import gather
from davylamp.engine.sharing.merge import FoldersDisagree, merge_folders
from davylamp.engine.sharing.open_results import open_results
from davylamp.engine.store.plan_records import find_failed, note_failed
from davylamp.errors import InvalidInput, Unavailable

KINDS = ("clean", "cells", "transfer", "images")


def files_of(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for kind in KINDS
        for path in sorted((folder / kind).glob("*"))
    }


@pytest.fixture
def parts(small_folder, tmp_path):
    """The three cells of a folder in two: the first has one of them, the second has two; both have the model."""
    keys = ResultsStore(small_folder).keys("cells")
    folders = []
    for name, chosen in (("one", keys[:1]), ("two", keys[1:])):
        folder = tmp_path / name
        shutil.copytree(small_folder, folder)
        for key in keys:
            if key not in chosen:
                for kind in ("cells", "images"):
                    for path in (folder / kind).glob(f"{key}*"):
                        path.unlink()
        folders.append(folder)
    return folders


@pytest.fixture
def disagreeing(parts, small_folder, tmp_path):
    """Two folders with one cell of which the second says that nothing was fooled."""
    other = tmp_path / "other"
    shutil.copytree(parts[0], other)
    store = ResultsStore(other)
    (key,) = store.keys("cells")
    record = store.read("cells", key)
    place = record.table.column_names.index("success")
    changed = record.table.set_column(place, "success", [np.zeros(len(record.table), bool)])
    store.path("cells", key).unlink()
    store.write("cells", key, changed, {**record.meta, "written": "2030-01-01T00:00:00+00:00"})
    return parts[0], other, key


def test_the_parts_together_are_the_folder_byte_for_byte(parts, small_folder, tmp_path):
    merged = merge_folders(parts, tmp_path / "both")
    assert files_of(tmp_path / "both") == files_of(small_folder)
    assert merged.records["cells"] == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["both", "one", "two"]


def test_a_table_of_the_merge_is_the_tables_of_the_parts(parts, tmp_path):
    merge_folders(parts, tmp_path / "both", link=True)
    rows = [row for part in parts for row in build_table(part, bootstrap=50).rows]
    both = build_table(tmp_path / "both", bootstrap=50).rows
    for row in rows:
        (same,) = (each for each in both if each.labels["implementation"] == row.labels["implementation"])
        for name, estimate in row.metrics.items():  # CTC is a level among the rows of its table
            assert name == "CTC" or repr(estimate) == repr(same.metrics[name])
    assert len(both) == 3


def test_several_are_read_as_one_without_a_merge(parts, small_folder, tmp_path):
    with open_results(*parts) as view:
        assert load(view).equals(load(small_folder))
        assert view.name == "one + two"
    assert not view.exists()
    assert len(files_of(parts[0])) > 0


def test_a_disagreement_is_named_and_refused(disagreeing, tmp_path):
    one, other, key = disagreeing
    with pytest.raises(FoldersDisagree, match=rf"contents for 1 record: cells/{key} .* on cnn.*differ in success"):
        merge_folders([one, other], tmp_path / "both")
    with pytest.raises(FoldersDisagree), open_results(one, other):
        pass
    assert not (tmp_path / "both").exists()


@pytest.mark.parametrize(("prefer", "winner"), [("one", 0), ("other", 1), ("newest", 1)])
def test_the_user_says_whose_record_counts(disagreeing, tmp_path, prefer, winner):
    *folders, key = disagreeing
    rule = prefer if prefer == "newest" else tmp_path / prefer
    merged = merge_folders(folders, tmp_path / "both", prefer=rule)
    assert any(key in note and "as requested" in note for note in merged.notes)
    name = next((folders[winner] / "cells").iterdir()).name
    assert [path.name for path in (tmp_path / "both" / "cells").iterdir()] == [name]


def test_what_was_made_of_the_losing_result_is_left_out(disagreeing, tmp_path):
    one, other, _ = disagreeing
    kept = sorted(path.name for path in (other / "images").iterdir())
    shutil.rmtree(other / "images")
    merge_folders([one, other], tmp_path / "both", prefer=one)
    assert sorted(path.name for path in (tmp_path / "both" / "images").iterdir()) == kept
    gathered = gather([one, other], prefer=other)
    assert not any(name.startswith("images/") for name in gathered.files)


def test_other_images_of_one_cell_are_a_disagreement(parts, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(parts[0], copy)
    path = next((copy / "images").iterdir())
    with np.load(path) as arrays:
        inputs = arrays["inputs"].copy()
    inputs.flat[0] = 1 - inputs.flat[0] if inputs.dtype != np.uint8 else 255 - inputs.flat[0]
    np.savez_compressed(path, inputs=inputs)
    with pytest.raises(FoldersDisagree, match="images/"):
        merge_folders([parts[0], copy], tmp_path / "both")


def test_a_damaged_file_is_refused_by_name(parts, tmp_path):
    path = next((parts[1] / "cells").iterdir())
    path.write_bytes(path.read_bytes()[:-7])
    picture = next((parts[0] / "images").iterdir())
    picture.write_bytes(picture.read_bytes()[:40])
    with pytest.raises(InvalidInput, match=rf"damaged files .2.: .*{path.name} is damaged.*{picture.name} is damaged"):
        merge_folders(parts, tmp_path / "both")


def test_a_killed_merge_leaves_nothing_and_is_taken_up(parts, small_folder, tmp_path, monkeypatch):
    placed = []

    def die(source, new):
        if len(placed) == 4:
            raise KeyboardInterrupt
        placed.append(source)
        merge.shutil.copyfile(source, new)

    with monkeypatch.context() as patch:
        patch.setattr(merge, "copy_file", die)
        with pytest.raises(KeyboardInterrupt):
            merge_folders(parts, tmp_path / "both")
    assert not (tmp_path / "both").exists()
    draft = tmp_path / ".both.merging"
    (draft / "clean" / "stray.parquet").write_bytes(b"of an older try")
    half = next((draft / "cells").iterdir(), None) or next(path for path in draft.rglob("*") if path.is_file())
    half.write_bytes(half.read_bytes()[:10])
    merge_folders(parts, tmp_path / "both")
    assert files_of(tmp_path / "both") == files_of(small_folder)
    assert not draft.exists()


def test_a_result_counts_beside_a_failure_and_failures_are_joined(parts, writer, tmp_path):
    labels, logits = torch.tensor([0, 1]), torch.eye(2)
    subject = writer.clean("m", logits, labels)
    writer.failed(subject, "foolbox:fgsm", "no memory")
    other = type(writer)(tmp_path / "elsewhere")
    other.clean("m", logits, labels)
    cell = other.cell(subject, "foolbox:fgsm", logits, logits.flip(1), labels, measures=())
    note_failed(writer.store, {"broken": "it fell"}, [])
    note_failed(other.store, {"broken": "it stood up, and fell"}, [])
    merge_folders([writer.store.folder, other.store.folder], tmp_path / "both")
    both = ResultsStore(tmp_path / "both")
    assert find_failed(both) == {"broken": "it fell; it stood up, and fell"}
    assert not both.read("cells", cell.key).failed


def test_kept_answers_are_joined_and_differing_ones_asked_again(parts, tmp_path):
    for folder, value, extra in zip(parts, (1.0, 2.0), (b"x", b"y"), strict=True):
        answers = AnswerCache(folder / FILE)
        answers.store(
            "http://m", {b"same": np.float32([3, 4]), b"differs": np.float32([value, 0]), extra: np.float32([5])}
        )
        answers.add_usage("http://m", 3, 0.5)
        answers.close()
    merged = merge_folders(parts, tmp_path / "both")
    joined = AnswerCache(tmp_path / "both" / FILE)
    assert set(joined.look_up("http://m", [b"same", b"differs", b"x", b"y"])) == {b"same", b"x", b"y"}
    assert joined.usage() == {"http://m": (6, 1.0)}
    joined.close()
    assert any("requested again: 1" in note for note in merged.notes)
    with closing(sqlite3.connect(tmp_path / "both" / FILE)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_where_nothing_can_be_put_is_said(parts, tmp_path):
    both = tmp_path / "both"
    for error, named, folders, where, words in (
        (InvalidInput, "at least two", parts[:1], both, {}),
        (InvalidInput, "must differ", parts, parts[0], {}),
        (Unavailable, "a new or an empty folder", parts, tmp_path, {}),
        (InvalidInput, "prefer.*nobody", parts, both, {"prefer": "nobody"}),
        (Unavailable, "a results folder", [parts[0], tmp_path], both, {}),
    ):
        with pytest.raises(error, match=named):
            merge_folders(folders, where, **words)


def test_the_command_names_what_it_did(parts, run, tmp_path, monkeypatch):
    code, out, _ = run("merge", str(parts[0]), str(parts[1]), "-o", str(tmp_path / "both"), "--json")
    assert code == 0
    assert json.loads(out)["records"]["cells"] == 3
    code, out, _ = run("table", str(parts[0]), str(parts[1]), "--json")
    assert code == 0
    assert len(json.loads(out)["rows"]) == 3
