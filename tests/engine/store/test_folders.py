"""Results folders as they are met: merged by copying, read-only, full of foreign, looping or special files."""

import errno
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from davylamp.adapters import find_attack
from davylamp.engine import ResultsStore, build_table, evaluate, load
from davylamp.engine.attack_run import AttackRun
from davylamp.engine.checks.check_folder import check_folder
from davylamp.engine.store import store as store_module
from davylamp.engine.store.atomic_files import read_regular_file, write_atomic
from davylamp.engine.store.checksummed import pack_record
from davylamp.engine.store.plan_records import list_cells, survey_folder
from davylamp.engine.store.store import ConflictingRecordsError
from davylamp.errors import StoreMismatch, Unavailable
from davylamp.report.page.build import build_report


@pytest.fixture
def folder(small_folder, tmp_path):
    """A copy of the small evaluation's results."""
    path = tmp_path / "results"
    shutil.copytree(small_folder, path)
    return path


def rewrite(store: ResultsStore, kind, key, change=lambda table: table, **meta) -> Path:
    """A record with another table or another `meta`, validly sealed, in its place."""
    record = store.read(kind, key)
    store.write(kind, key, change(record.table), {**record.meta, **meta})
    return store.path(kind, key)


def flip(table: pa.Table) -> pa.Table:
    """One image was not fooled."""
    flags = table["success"].to_pylist()
    place = table.column_names.index("success")
    return table.set_column(place, "success", pa.array([not flags[0], *flags[1:]]))


def later(table: pa.Table) -> pa.Table:
    """The same results, of a slower machine that rounds otherwise."""
    table = table.set_column(table.column_names.index("seconds"), "seconds", pa.array([9.0] * len(table)))
    distances = [each * (1 + 1e-7) for each in table["l2"].to_pylist()]
    return table.set_column(table.column_names.index("l2"), "l2", pa.array(distances))


def merged(folder: Path, tmp_path: Path, change) -> tuple[Path, str]:
    """A folder into which another was copied that has another record of one cell; and its key."""
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    store = ResultsStore(other)
    key = store.keys("cells")[0]
    record = store.read("cells", key)
    store.remove("cells", key)
    store.write("cells", key, change(record.table), {**record.meta, "written": "2030-01-01"})
    shutil.copytree(other, folder, dirs_exist_ok=True)
    return folder, key


def test_two_results_of_one_key_are_a_named_conflict_whichever_was_copied_last(folder, small_plan, tmp_path):
    where, key = merged(folder, tmp_path, flip)
    store = ResultsStore(where)
    with pytest.raises(
        ConflictingRecordsError, match=r"conflicting results.*differ in success.*; delete the wrong one"
    ):
        store.read("cells", key)
    assert len(load(where)["cell"].unique()) == 2
    assert "conflicting results" in build_table(where).notes[0]
    assert "conflicting results" in survey_folder(where, headers=False).damaged[0]
    summary = evaluate(small_plan, store)
    assert list(summary.failed) == [key]
    assert "conflicting results" in summary.failed[key]
    assert len(list(where.glob(f"cells/{key}*"))) == 2  # whose it is to say is not for us
    assert evaluate(small_plan, store, retry_failed=True).failed == {}
    assert survey_folder(where, headers=False).damaged == []


def test_the_same_result_of_another_machine_is_no_conflict(folder, small_plan, tmp_path):
    where, key = merged(folder, tmp_path, later)
    assert len(list(where.glob(f"cells/{key}*"))) == 2
    assert not ResultsStore(where).read("cells", key).failed
    assert survey_folder(where, headers=False).damaged == []
    assert evaluate(small_plan, ResultsStore(where)).kept == 3


def test_what_replaces_another_record_is_no_conflict_when_the_old_one_is_left(folder):
    store = ResultsStore(folder)
    key = store.keys("cells")[0]
    old = store.path("cells", key)
    kept, before = old.read_bytes(), store.read("cells", key)
    rewrite(store, "cells", key, flip)
    assert not old.exists()
    old.write_bytes(kept)  # as a process killed between the two steps leaves it
    assert len(list(folder.glob(f"cells/{key}*"))) == 2
    assert store.read("cells", key).table["success"].to_pylist() == flip(before.table)["success"].to_pylist()
    assert survey_folder(folder, headers=False).damaged == []


def test_a_failure_beside_a_result_gives_way(folder, tmp_path):
    other, key = ResultsStore(tmp_path / "other"), ResultsStore(folder).keys("cells")[0]
    meta = {**ResultsStore(folder).read("cells", key).meta, "status": "failed", "reason": "no luck"}
    other.write("cells", key, pa.table({}), meta)
    shutil.copytree(tmp_path / "other", folder, dirs_exist_ok=True)
    assert not ResultsStore(folder).read("cells", key).failed


def drop(name):
    return lambda table: table.drop_columns([name])


FOREIGN = {
    "no column success": (drop("success"), {}),
    "no column adv_logits": (drop("adv_logits"), {}),
    "has the type string": (lambda table: table.set_column(5, "success", pa.array(["yes"] * len(table))), {}),
    "has 15 of 16 images": (lambda table: table.slice(1), {}),
    "cannot be read": (lambda table: table, {"spec": {"attack": 3}}),
    "cannot be read: KeyError": (lambda table: table, {"subject": {}, "spec": {}}),
    "status": (lambda table: table, {"status": "perhaps"}),
    "do not match its file name": (lambda table: table, {"spec": None}),
}


@pytest.mark.parametrize("words", FOREIGN)
def test_a_foreign_file_with_a_valid_seal_costs_itself(folder, small_plan, words):
    change, meta = FOREIGN[words]
    store = ResultsStore(folder)
    first, second = store.keys("cells")[:2]
    if meta.get("spec", 1) is None:
        meta = {"spec": store.read("cells", second).meta["spec"]}
    path = rewrite(store, "cells", first, change, **meta)
    (line,) = survey_folder(folder, headers=False).damaged
    assert line.startswith(f"{path} is damaged (")
    assert words.split(":")[0] in line
    assert len(load(folder)["cell"].unique()) == len(build_table(folder).rows) == 2
    assert len(list_cells(folder)) == 2
    assert {check.cell for check in check_folder(folder)} == {"", *store.keys("cells")[1:]}
    if words in ("no column adv_logits", "cannot be read"):  # a page takes dozens of times as long as what it reads
        assert "is damaged" in build_report(folder, bootstrap=10)
    summary = evaluate(small_plan, store)
    assert (summary.done, summary.kept, len(summary.damaged)) == (1, 2, 1)
    assert survey_folder(folder, headers=False).damaged == []


def plant(kind: str, path: Path) -> None:
    """Something that is no results file, under the name of one."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    else:
        path.symlink_to({"zero": "/dev/zero", "loop": path.name, "nothing": "nowhere"}[kind])


@pytest.mark.parametrize("kind", ["pipe", "folder", "empty", "zero", "loop", "nothing"])
@pytest.mark.parametrize("where", ["cells", "clean", "parts", "transfer", "checks", "plans"])
def test_special_files_are_named_and_never_followed(folder, kind, where):
    (folder / where).mkdir(exist_ok=True)
    for name in ("0123456789abcdef0123", "no key at all"):
        plant(kind, folder / where / f"{name}.parquet")
    assert len(survey_folder(folder, headers=False).damaged) == 2
    assert len(build_table(folder).rows) == len(list_cells(folder)) == 3
    assert len(check_folder(folder)) > 3


@pytest.mark.parametrize("kind", ["pipe", "zero", "folder", "loop", "nothing"])
def test_a_special_file_in_place_of_a_cell_is_no_result(folder, small_plan, kind):
    store = ResultsStore(folder)
    path = store.path("cells", store.keys("cells")[0])
    path.unlink()
    plant(kind, path)
    assert evaluate(small_plan, store).failed == {}
    assert len(load(folder)["cell"].unique()) == 3


def test_a_file_of_another_format_or_one_that_may_not_be_read_fails_its_cell_alone(folder, small_plan, monkeypatch):
    store = ResultsStore(folder)
    first, second, _ = store.keys("cells")
    path, other = store.path("cells", first), store.path("cells", second)
    record = store.read("cells", first)
    path.write_bytes(pack_record(record.table, {**record.meta, "format": 2}, f"cells/{first}", []))

    def refuse(path, *rest):
        if path == other:
            raise PermissionError(errno.EACCES, "Permission denied")
        return read_regular_file(path, *rest)

    monkeypatch.setattr(store_module, "read_regular_file", refuse)
    assert len(load(folder)["cell"].unique()) == 1
    assert any("Permission denied" in note for note in build_table(folder).notes)
    summary = evaluate(small_plan, ResultsStore(folder))
    assert set(summary.failed) == {first, second}
    assert "expected results of format 1, got 2" in summary.failed[first]
    assert "could not read" in summary.failed[second]
    assert path.exists()


MARKS = {
    "expected results of format 1 in": [b"[]", b"null", b"3", b'"a"', b"{}", b'{"format": null}', b'{"format": 2}'],
    "could not read the results folder": [b"", b"{", b"\xff\xfe", b"[" * 50_000],
}


@pytest.mark.parametrize(("said", "content"), [(said, each) for said, contents in MARKS.items() for each in contents])
def test_a_mark_of_another_format_or_none_is_refused(tmp_path, said, content):
    (tmp_path / "davylamp.json").write_bytes(content)
    with pytest.raises(StoreMismatch if "format" in said else Unavailable, match=said):
        ResultsStore(tmp_path)


def test_nothing_is_made_before_something_is_written(tmp_path):
    store = ResultsStore(tmp_path / "deep" / "results")
    assert list(store.read_all("cells")) == []
    assert list(tmp_path.iterdir()) == []
    store.write("cells", "abc", pa.table({}), {"status": "failed", "reason": "none"})
    assert (tmp_path / "deep" / "results" / "davylamp.json").is_file()


@pytest.fixture
def read_only(monkeypatch):
    """A disk that refuses every change: root, as whom tests may run, passes any permission."""

    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    for owner, name in ((Path, "unlink"), (Path, "mkdir"), (Path, "write_bytes"), (Path, "replace")):
        monkeypatch.setattr(owner, name, refuse)
    monkeypatch.setattr(store_module.FileLock, "acquire", refuse)
    return monkeypatch


def test_a_read_only_folder_is_one_line_and_can_be_read(folder, small_plan, read_only):
    (folder / "locks").exists() or os.mkdir(folder / "locks")  # noqa: PTH102 - the fixture forbids the other way
    (folder / "locks" / "abc-0.lock").touch()  # left by a process that was killed
    assert {state.status for state in list_cells(folder)} == {"done"}
    assert evaluate(small_plan, ResultsStore(folder)).kept == 3
    os.unlink(ResultsStore(folder).path("cells", small_plan.cells[0].key))  # noqa: PTH108
    with pytest.raises(Unavailable, match=r"could not write .*Read-only file system"):
        evaluate(small_plan, ResultsStore(folder))


def test_a_disk_that_becomes_read_only_amid_the_work_is_one_line(small_plan, tmp_path):
    class Fails:
        def __call__(self, tasks, progress):
            for _ in tasks:
                shutil.rmtree(tmp_path / "locks")
                (tmp_path / "locks").symlink_to("/proc/self")  # nothing there can be removed
                raise OSError(errno.EROFS, "Read-only file system")
            yield

    with pytest.raises(OSError, match="Read-only"):
        evaluate(small_plan, ResultsStore(tmp_path), executor=Fails())


def test_a_file_is_written_whole_or_stays_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    assert write_atomic(path, "good ü") == path

    def fill(self, data):
        with self.open("wb") as file:
            file.write(data[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", fill)
        with pytest.raises(Unavailable, match=r"could not write .*page\.html \(No space left on device\)"):
            write_atomic(path, "other")
    assert path.read_text(encoding="utf-8") == "good ü"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(Unavailable, match="folder"):
        write_atomic(tmp_path / "nowhere" / "page.html", "text")
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(Unavailable, match="could not write"):
        write_atomic(tmp_path, "text")
    if Path("/dev/full").exists():
        with pytest.raises(Unavailable, match="No space left on device"):
            write_atomic("/dev/full", "text")
        write_atomic("/dev/null", "text")
        assert Path("/dev/null").is_char_device()
    link = tmp_path / "link.html"
    link.symlink_to(path)
    write_atomic(link, "through the link")
    assert link.is_symlink()
    assert path.read_text() == "through the link"


def renamed(folder: Path, attack: str, **about) -> str:
    """The first cell as one of another attack; its key."""
    store = ResultsStore(folder)
    key = store.keys("cells")[0]
    record = store.read("cells", key)
    spec = {**record.meta["spec"], "attack": attack}
    cell = AttackRun.from_spec(spec)
    store.write("cells", cell.key, record.table, {**record.meta, "key": cell.key, "spec": spec, **about})
    store.remove("cells", key)
    return cell.key


@pytest.mark.parametrize("attack", ["foolbox:from-the-future", "newlib:pgd", "best(newlib:pgd)", "pgd"])
def test_a_cell_of_an_unknown_attack_is_listed_and_leaves_the_others(folder, attack):
    key = renamed(folder, attack)
    states = {state.key: state for state in list_cells(folder)}
    assert states[key].reason.startswith(f"unknown attack: {attack}")
    table = load(folder)
    assert list(table.attrs["unknown"]) == [key]
    assert len(table["cell"].unique()) == 2
    for by in ("attacks", "models", "pairs"):
        assert any("unknown attack" in note for note in build_table(folder, by=by).notes)
    assert key not in {check.cell for check in check_folder(folder)}
    if attack in ("pgd", "best(newlib:pgd)"):
        assert "unknown attack" in build_report(folder, bootstrap=10)


def test_what_the_catalogue_knows_of_an_attack_is_kept_with_its_results(folder):
    store = ResultsStore(folder)
    about = {record.meta["spec"]["attack"]: record.meta["about"] for _, record in store.read_all("cells")}
    assert about["foolbox:ddn"]["kind"] == "minimum-norm"
    fgsm = find_attack("fgsm")
    assert about["torchattacks:fgsm"] == {
        "library": "torchattacks", "attack": "fgsm", "title": fgsm.title, "source": fgsm.source, "variant": "",
        "kind": "fixed-budget", "knowledge": "white-box", "norms": ["linf"], "random": [], "universal": False,
    }  # fmt: skip


ABOUT = {
    "library": "newlib", "attack": "swirl", "title": "Swirl", "source": "me", "variant": "", "kind": "minimum-norm",
    "knowledge": "decision-based", "norms": ["linf"], "random": ["torch"], "universal": False,
}  # fmt: skip


def test_a_cell_of_an_attack_that_is_not_here_is_read_by_what_its_record_says(folder):
    key = renamed(folder, "newlib:swirl", about=ABOUT)
    table = load(folder)
    mine = table[table["cell"] == key]
    assert len(mine)
    assert table.attrs["unknown"] == {}
    assert set(mine["attack"]) == {"swirl"}
    assert set(mine["knowledge"]) == {"decision-based"}
    assert mine["minimum_norm"].all()
    for by in ("attacks", "models", "pairs"):
        built = build_table(folder, by=by)
        assert any(line.startswith("newlib:swirl is not in the catalogue") for line in built.notes)
    assert key in {check.cell for check in check_folder(folder)}
    assert "newlib:swirl" in build_report(folder, bootstrap=10)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "quick"}, {"knowledge": 3}, {"attack": "other"}, {"library": ["x"]}, {"norms": "linf"},
        {"norms": [1]}, {"random": None}, {"title": 5}, {"variant": "repaired"},
    ],
)  # fmt: skip
def test_a_foreign_description_of_an_attack_is_not_believed(folder, change):
    key = renamed(folder, "newlib:swirl", about={**ABOUT, **change})
    assert list(load(folder).attrs["unknown"]) == [key]


@pytest.mark.parametrize("change", ["remove", "damage"])
def test_a_report_without_clean_predictions_says_so(folder, change):
    store = ResultsStore(folder)
    path = store.path("clean", store.keys("clean")[0])
    path.unlink() if change == "remove" else path.write_bytes(b"x")
    page = build_report(folder, bootstrap=10)
    assert "no clean predictions for cnn" in page
