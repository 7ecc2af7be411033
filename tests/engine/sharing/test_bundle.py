"""Bundles: the same bytes for the same folder, the same records after the way there and back, nothing foreign."""

import hashlib
import io
import json
import shutil
import stat
import zipfile

import numpy as np
import pyarrow.parquet as pq
import pytest

from davylamp.engine import ResultsStore, build_table, load
from davylamp.engine.sharing import unpack
from davylamp.engine.sharing.bundle import write_bundle
from davylamp.engine.sharing.describe import SharingTerms
from davylamp.engine.sharing.merge import FoldersDisagree, merge_folders
from davylamp.engine.sharing.open_results import open_results
from davylamp.engine.sharing.unpack import unpack_bundle
from davylamp.engine.store.store import KINDS
from davylamp.errors import InvalidInput, Unavailable

TERMS = SharingTerms("CC-BY-4.0", "A laboratory", "Digits under attack")


def records_of(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for kind in (*KINDS, "images")
        for path in sorted((folder / kind).glob("*"))
    }


@pytest.fixture(scope="module")
def bundle(small_folder, tmp_path_factory):
    return write_bundle(small_folder, tmp_path_factory.mktemp("bundle") / "digits.zip", terms=TERMS).path


@pytest.fixture
def rewrite(bundle, tmp_path):
    """A bundle with other files in it: bytes by name, None to leave one out; checksums are made to fit."""

    def write(changes=None, *, entries=(), sums=None, compression=zipfile.ZIP_STORED):
        with zipfile.ZipFile(bundle) as good:
            files = {name: good.read(name) for name in good.namelist() if name != "SHA256SUMS"}
        files = {name: content for name, content in (files | (changes or {})).items() if content is not None}
        lines = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()} | (sums or {})
        files["SHA256SUMS"] = "".join(f"{digest}  {name}\n" for name, digest in lines.items()).encode()
        path = tmp_path / "other.zip"
        with zipfile.ZipFile(path, "w", compression) as made:
            for name, content in [*files.items(), *entries]:
                made.writestr(name, content)
        return path

    return write


def test_there_and_back_every_record_is_the_same_and_so_are_the_bytes_of_the_bundle(bundle, small_folder, tmp_path):
    unpacked = unpack_bundle(bundle, tmp_path / "back")
    assert records_of(tmp_path / "back") == records_of(small_folder)
    assert unpacked.records["cells"] == 3
    again = write_bundle(tmp_path / "back", tmp_path / "again.zip", terms=TERMS).path
    assert again.read_bytes() == bundle.read_bytes()
    assert load(tmp_path / "back").equals(load(small_folder))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.zip", "back"]


def test_the_tables_in_a_bundle_are_those_of_load(bundle, small_folder):
    with zipfile.ZipFile(bundle) as files:
        read = pq.read_table(io.BytesIO(files.read("data/responses.parquet"))).to_pandas()
        cells = pq.read_table(io.BytesIO(files.read("data/cells.parquet"))).to_pandas()
        manifest = json.loads(files.read("bundle.json"))
        listed = files.read("SHA256SUMS").decode()
        for name in files.namelist():
            assert name == "SHA256SUMS" or f"{hashlib.sha256(files.read(name)).hexdigest()}  {name}\n" in listed
    frame = load(small_folder)
    assert list(read.columns) == list(frame.columns)
    np.testing.assert_array_equal(read["distance"], frame["distance"])
    assert sorted(cells["cell"]) == ResultsStore(small_folder).keys("cells") == sorted(manifest["configuration"])
    assert manifest["licence"] == "CC-BY-4.0"
    assert "torch" in manifest["versions"]


def test_a_bundle_is_read_as_a_folder_and_beside_one(bundle, small_folder, tmp_path):
    with open_results(bundle) as folder:
        assert [repr(row) for row in build_table(folder).rows] == [repr(row) for row in build_table(small_folder).rows]
    assert not folder.exists()
    with open_results(bundle, small_folder) as both:
        assert load(both).equals(load(small_folder))
    shutil.unpack_archive(bundle, tmp_path / "by hand")
    assert load(tmp_path / "by hand").equals(load(small_folder))


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("gate", "--require", "RA >= 0.5 @ l1 3"), 2),
        (("gate", "--require", "RA_union >= 0.5"), 1),
        (("gate", "--require", "CA >= 0.1"), 0),
        (("standing",), 1),
    ],
)
def test_commands_name_the_bundle_and_not_where_it_was_unpacked(run, bundle, command, code):
    exit_code, *printed = run(command[0], str(bundle), *command[1:])
    text = "".join(printed)
    assert exit_code == code
    assert "davylamp-" not in text.replace(str(bundle), "")
    assert "RA_union" in text or str(bundle) in " ".join(text.split())


def test_without_images_and_without_terms_both_are_said(small_folder, tmp_path):
    bundled = write_bundle(small_folder, tmp_path / "small.zip", images=False)
    with zipfile.ZipFile(bundled.path) as files:
        assert not any(name.startswith("images/") for name in files.namelist())
        assert b"no licence is stated" in files.read("LICENSE.txt").lower()
    assert any("files of adversarial images" in note for note in bundled.notes)


@pytest.mark.parametrize(
    "name", ["../evil.parquet", "/etc/passwd", "cells/../../evil.parquet", "cells\\evil.parquet", "evil.py", "cells/",
             "cells/deep/a.parquet", "C:/evil.parquet", "cells/.hidden.parquet", "answers.sqlite", "cells/a.pkl"],
)  # fmt: skip
def test_names_of_other_places_are_refused(rewrite, tmp_path, name):
    path = rewrite(entries=[(name, b"x")])
    with pytest.raises(InvalidInput, match=r"refused: .*name or location"):
        unpack_bundle(path, tmp_path / "out")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["other.zip"]


def test_links_and_doubles_are_refused(rewrite, tmp_path):
    link = zipfile.ZipInfo("cells/link.parquet")
    link.external_attr, link.create_system = (stat.S_IFLNK | 0o777) << 16, 3
    with pytest.raises(InvalidInput, match="a link or a special file"):
        unpack_bundle(rewrite(entries=[(link, b"/etc/passwd")]), tmp_path / "out")
    with pytest.warns(UserWarning, match="Duplicate"):
        path = rewrite(entries=[("README.md", b"other")])
    with pytest.raises(InvalidInput, match="duplicated"):
        unpack_bundle(path, tmp_path / "out")


def test_bombs_are_refused_before_they_unpack(rewrite, tmp_path, monkeypatch):
    path = rewrite({"README.md": bytes(50 << 20)}, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(InvalidInput, match=r"it unpacks from \d+ to 52428800 bytes"):
        unpack_bundle(path, tmp_path / "out")
    monkeypatch.setattr(unpack, "LARGEST", 1000)
    with pytest.raises(InvalidInput, match="more than the limit of 1000"):
        unpack_bundle(rewrite(), tmp_path / "out")


def test_arrays_that_are_pickles_or_bombs_are_refused(rewrite, tmp_path, small_folder):
    name = next(iter(path.name for path in (small_folder / "images").iterdir()))
    file = io.BytesIO()
    np.savez(file, inputs=np.array([{"a": 1}], object))
    with pytest.raises(InvalidInput, match="contains pickled objects"):
        unpack_bundle(rewrite({f"images/{name}": file.getvalue()}), tmp_path / "out")
    file, header = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)})
    with zipfile.ZipFile(file, "w") as arrays:
        arrays.writestr("inputs.npy", header.getvalue())
    with pytest.raises(InvalidInput, match="larger array than the file contains"):
        unpack_bundle(rewrite({f"images/{name}": file.getvalue()}), tmp_path / "out")


def test_what_is_not_what_its_checksum_says_is_refused(rewrite, small_folder, tmp_path):
    cell = next(path for path in (small_folder / "cells").iterdir())
    wrong = {f"cells/{cell.name}": "0" * 64}
    with pytest.raises(InvalidInput, match=f"{cell.name} of .* does not match its checksum"):
        unpack_bundle(rewrite(sums=wrong), tmp_path / "out")
    with pytest.raises(InvalidInput, match="has no checksum"):
        unpack_bundle(rewrite(entries=[("cells/extra.parquet", b"x")]), tmp_path / "out")
    altered = bytearray(cell.read_bytes())
    altered[len(altered) // 2] ^= 1
    # its checksum was made to fit; its seal was not
    with pytest.raises(InvalidInput, match=rf"damaged files \(1\): .*{cell.name}"):
        unpack_bundle(rewrite({f"cells/{cell.name}": bytes(altered)}), tmp_path / "out")
    with pytest.raises(InvalidInput, match="a bundle of format 1"):
        unpack_bundle(rewrite({"bundle.json": b'{"bundle": 2}'}), tmp_path / "out")
    with pytest.raises(InvalidInput, match=r"without bundle\.json"):
        unpack_bundle(rewrite({"bundle.json": None}), tmp_path / "out")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["other.zip"]


def test_no_bundle_and_no_place_are_one_line(bundle, small_folder, tmp_path):
    (tmp_path / "text.zip").write_text("no zip", encoding="utf-8")
    (tmp_path / "cut.zip").write_bytes(bundle.read_bytes()[:-400])
    for name in ("text.zip", "cut.zip"):
        with pytest.raises(InvalidInput, match=r"expected a bundle|refused: "):
            unpack_bundle(tmp_path / name, tmp_path / "out")
    with pytest.raises(Unavailable, match="expected a bundle"):
        unpack_bundle(tmp_path / "none.zip", tmp_path / "out")
    with pytest.raises(Unavailable, match="a new or an empty folder"):
        unpack_bundle(bundle, small_folder)
    with pytest.raises(InvalidInput, match=r"NAME\.zip"):
        write_bundle(small_folder, tmp_path / "bundle.tar")
    with pytest.raises(InvalidInput, match="SPDX"):
        SharingTerms("all yours!")


def test_a_bundle_and_a_folder_that_disagree_are_not_read_together(bundle, small_folder, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(small_folder, other)
    store = ResultsStore(other)
    key = store.keys("cells")[0]
    record = store.read("cells", key)
    place = record.table.column_names.index("forwards")
    table = record.table.set_column(place, "forwards", [np.zeros(len(record.table), np.int64)])
    store.path("cells", key).unlink()
    store.write("cells", key, table, record.meta)
    with open_results(bundle) as opened, pytest.raises(FoldersDisagree, match="differ in forwards"):
        merge_folders([opened, other], tmp_path / "both")


def test_the_commands_pack_read_rank_and_unpack(run, small_folder, tmp_path):
    options = ("--licence", "CC0-1.0", "--creator", "me")
    code, out, _ = run("export", small_folder, "digits.zip", *options)
    assert code == 0
    assert "3 runs" in out
    code, _, errors = run("import", "digits.zip", "-o", "back")
    assert code == 0, errors
    assert run("table", "digits.zip", "--json")[1] == run("table", "back", "--json")[1]
    assert run("report", "digits.zip", "back", "--merge", "-o", "report.html")[0] == 0
    for named, *words in (
        ("no new models", "rank", "back", "--against", "digits.zip"),
        ("a new or an empty folder", "import", "digits.zip", "-o", "back"),
        ("-o and --data", "export", small_folder, "digits.zip", "-o", "x"),
    ):
        code, _, errors = run(*words)
        assert (code, named in " ".join(errors.split())) == (1, True)
