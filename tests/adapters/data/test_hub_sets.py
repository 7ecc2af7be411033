"""Data sets in the files of the package datasets: the pixels and labels that were written, in every layout of them."""

import io
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image
from pyarrow import parquet

from davylamp.adapters import Classifier
from davylamp.adapters.data import hf_datasets
from davylamp.adapters.data.datasets import ImagePreparation, load_data, load_data_for, open_prepared
from davylamp.adapters.data.hub_parts import part_of, select_split
from davylamp.errors import InvalidInput, MissingLibrary, Unavailable

NAMES = ["cat", "ant", "bee"]


def make_table(pixels, labels, names=NAMES, *, label="label", paths=False):
    """What `Dataset.to_parquet` writes: images as files inside of a structure, features in the schema's metadata."""
    values = []
    for each in pixels:
        file = io.BytesIO()
        Image.fromarray(each).save(file, "PNG")
        values.append({"bytes": None, "path": "a.png"} if paths else {"bytes": file.getvalue(), "path": None})
    classes = {"names": names, "_type": "ClassLabel"} if names else {"dtype": "int64", "_type": "Value"}
    features = {"id": {"dtype": "int32", "_type": "Value"}, "img": {"_type": "Image"}, label: classes}
    images = pa.array(values, pa.struct({"bytes": pa.binary(), "path": pa.string()}))
    table = pa.table({"id": pa.array(range(len(values)), pa.int32()), "img": images, label: labels})
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


@pytest.fixture(scope="module")
def truth():
    """Twelve images of noise, sorted by class."""
    pixels = np.random.default_rng(0).integers(0, 256, (12, 32, 34, 3), dtype=np.uint8)
    return pixels, [place // 4 for place in range(12)]


@pytest.fixture
def folder(truth, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pixels, labels = truth
    (tmp_path / "set" / "data").mkdir(parents=True)
    for piece, part in enumerate((slice(0, 5), slice(5, 12))):
        file = tmp_path / "set" / "data" / f"test-{piece:05}-of-00002.parquet"
        parquet.write_table(make_table(pixels[part], labels[part]), file, row_group_size=3)
    parquet.write_table(make_table(pixels[:2], labels[:2]), tmp_path / "set" / "data" / "train-00000-of-00001.parquet")
    return tmp_path / "set"


def as_tensors(truth):
    pixels, labels = truth
    return torch.tensor(pixels).permute(0, 3, 1, 2).float() / 255, torch.tensor(labels)


def test_pixels_and_labels_are_those_that_were_written(truth, folder):
    inputs, labels = as_tensors(truth)
    for name in ("hf:./set", "hf:./set:test", "hf:set:default/test", f"hf:{folder}:test"):
        data = load_data(name)
        assert torch.equal(data.inputs, inputs)
        assert torch.equal(data.labels, labels)
        assert data.names == [str(place) for place in range(12)]
    assert len(load_data("hf:./set:train").labels) == 2


def test_a_limit_takes_the_classes_in_turns(truth, folder):
    inputs, _ = as_tensors(truth)
    data = load_data("hf:./set", limit=5)
    assert data.names == ["0", "4", "8", "1", "5"]
    assert data.labels.tolist() == [0, 1, 2, 0, 1]
    assert torch.equal(data.inputs, inputs[[0, 4, 8, 1, 5]])


def test_each_block_of_a_file_is_read_once_whatever_the_order(truth, folder, monkeypatch):
    inputs, _ = as_tensors(truth)
    read, opened = [], parquet.ParquetFile.read_row_group
    monkeypatch.setattr(
        parquet.ParquetFile,
        "read_row_group",
        lambda self, group, columns: read.append((self, group)) or opened(self, group, columns=columns),
    )
    images = open_prepared("hf:./set", None, ImagePreparation(None, None, "bilinear"))
    hf_datasets._read.cache_clear()
    read.clear()
    places = [0, 3, 5, 8, 11, 1, 4, 6]
    assert torch.equal(images.take(places).inputs, inputs[places])
    assert len(read) == 5  # of 3 rows: 0 to 2, 3 and 4, 5 to 7, 8 to 10, 11


def test_the_arrow_files_of_save_to_disk(truth, folder):
    inputs, labels = as_tensors(truth)
    (folder / "saved" / "test").mkdir(parents=True)
    table = make_table(*truth)
    place = str(folder / "saved" / "test" / "data-00000-of-00001.arrow")
    with pa.OSFile(place, "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=5)
    data = load_data("hf:./set/saved")
    assert torch.equal(data.inputs, inputs)
    assert torch.equal(data.labels, labels)


def test_a_file_that_takes_the_place_of_another_is_read_anew(truth, folder):
    pixels, labels = truth
    file = folder / "data" / "train-00000-of-00001.parquet"
    before = load_data("hf:./set:train").inputs
    parquet.write_table(make_table(pixels[6:8], labels[6:8]), file)
    assert not torch.equal(load_data("hf:./set:train").inputs, before)


def test_classes_have_the_models_numbers_by_their_names(truth, folder):
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3264, 3))
    classifier = Classifier(network, num_classes=3)
    assert load_data_for(classifier, "hf:./set").labels.tolist() == truth[1]
    classifier.class_names = ("bee", "cat", "ant")
    assert load_data_for(classifier, "hf:./set").labels.tolist() == [{0: 1, 1: 2, 2: 0}[label] for label in truth[1]]
    corrupted = load_data_for(classifier, "hf:./set+brightness:2", 3)
    assert corrupted.labels.tolist() == [0, 1, 2]
    assert corrupted.names == ["8", "0", "4"]


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("data/test-00000-of-00001.parquet", "default/test"),
        ("plain_text/test-00001-of-00002.parquet", "plain_text/test"),
        ("default/test/0000.parquet", "default/test"),
        ("en/partial-train/0003.parquet", "en/partial-train"),
        ("test/data-00000-of-00001.arrow", "default/test"),
        ("data-00000-of-00001.arrow", "default/all"),
        ("validation.parquet", "default/validation"),
        ("0000.parquet", "default/all"),
    ],
)
def test_the_part_of_a_file_is_said_by_its_place(file, part):
    assert part_of(file) == part


def test_the_part_for_testing_is_taken_where_none_is_named():
    assert select_split(["default/train", "default/test"], "", "hf:a/b") == "default/test"
    assert select_split(["en/train", "en/validation"], "", "hf:a/b") == "en/validation"
    assert select_split(["default/all"], "", "hf:a/b") == "default/all"
    assert select_split(["en/test", "default/test"], "test", "hf:a/b:test") == "default/test"
    for parts, part in ((["en/test", "fr/test"], ""), (["en/test", "fr/test"], "test"), (["default/test"], "val")):
        with pytest.raises(InvalidInput, match=r"^expected hf:a/b:PART with one of the parts "):
            select_split(parts, part, f"hf:a/b:{part}" if part else "hf:a/b")


@pytest.mark.parametrize(
    ("table", "error", "words"),
    [
        (lambda p: make_table(p[:2], [0, -1]), InvalidInput, "got -1; the split may have no labels"),
        (lambda p: make_table(p[:2], [0, None]), InvalidInput, "got None; the split may have no labels"),
        (lambda p: make_table(p[:2], [0, 3]), InvalidInput, "expected classes numbered from 0 .* got 3"),
        (lambda p: make_table(p[:2], [0.5, 1.0], None), InvalidInput, "expected classes numbered from 0 .* got 0.5"),
        (lambda p: make_table(p[:2], [0, 1], None, label="kind"), InvalidInput, "expected a column of images and one"),
        (lambda p: make_table(p[:2], [0, 1], paths=True), InvalidInput, "expected images stored in .* got paths"),
        (
            lambda p: make_table(p[:0], pa.array([], pa.int64())),
            InvalidInput,
            "no labelled images in",
        ),
        (lambda p: make_table(p[:2], [0, 1]).drop_columns("img"), InvalidInput, "got id, label"),
    ],
)
def test_a_file_that_is_something_else_is_one_line(truth, tmp_path, table, error, words):
    parquet.write_table(table(truth[0]), tmp_path / "test.parquet")
    with pytest.raises(error, match=words) as caught:
        load_data(f"hf:{tmp_path}")
    assert "\n" not in str(caught.value)


def test_folders_and_damaged_files_are_one_line(folder, tmp_path):
    (folder / "data" / "train-00000-of-00001.parquet").write_bytes(b"PAR1 no more")
    for name, words in (
        ("hf:./set:train", "could not read .*train-00000-of-00001.parquet"),
        ("hf:./nowhere", "no Parquet or Arrow files"),
        (f"hf:{tmp_path / 'set' / 'data' / 'none'}:test", "no Parquet or Arrow files"),
    ):
        with pytest.raises(Unavailable, match=words):
            load_data(name)
    for name in ("hf:a/b/c", "hf:a/", "hf:"):
        with pytest.raises(InvalidInput):
            load_data(name)


class Hub(BaseHTTPRequestHandler):
    """The three answers of a hub that are asked for: whether a data set is there, its files, and one of them."""

    files: ClassVar[dict[str, bytes]] = {}
    asked: ClassVar[list[str]] = []

    def do_HEAD(self):
        self._answer(body=False)

    def do_GET(self):
        self._answer(body=True)

    def _answer(self, *, body):
        path = unquote(urlsplit(self.path).path)
        content = self._content(path)
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.send_header("ETag", '"0123456789012345678901234567890123456789"')
        self.send_header("X-Repo-Commit", "a" * 40)
        self.end_headers()
        if body:
            self.wfile.write(content or b"")

    def _content(self, path):
        if "/tree/" in path:
            tree = [{"type": "file", "path": name, "size": len(each), "oid": "0"} for name, each in self.files.items()]
            return json.dumps([*tree, {"type": "directory", "path": "default", "oid": "0"}]).encode()
        if "/resolve/" in path:
            name = path.partition("/refs/convert/parquet/")[2]
            if self.command == "GET":
                self.asked.append(name)
            return self.files.get(name)
        return b"{}"

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(truth, tmp_path, monkeypatch):
    pytest.importorskip("huggingface_hub", reason="the extra hf is not installed")
    file = io.BytesIO()
    parquet.write_table(make_table(*truth), file)
    Hub.files = {"default/test/0000.parquet": file.getvalue(), "default/train/0000.parquet": b"x" * 3_000_000}
    Hub.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "cache" / "hub"))
    monkeypatch.delenv("DAVYLAMP_DOWNLOAD", raising=False)
    yield server
    server.shutdown()
    server.server_close()


def test_a_set_is_fetched_if_that_was_asked_for_and_only_once(hub, truth, monkeypatch, capsys):
    with pytest.raises(Unavailable, match=r"DAVYLAMP_DOWNLOAD=yes .*\(3.0 MB\)"):
        load_data("hf:org/noise:train")
    assert Hub.asked == []
    monkeypatch.setenv("DAVYLAMP_DOWNLOAD", "yes")
    inputs, labels = as_tensors(truth)
    for _ in range(2):
        data = load_data("hf:org/noise")
        assert torch.equal(data.inputs, inputs)
        assert torch.equal(data.labels, labels)
    assert Hub.asked == ["default/test/0000.parquet"]
    said = capsys.readouterr()
    assert "fetching hf:org/noise (0.1 MB) to " in said.err
    assert not said.out
    hub.shutdown()
    hub.server_close()
    monkeypatch.delenv("DAVYLAMP_DOWNLOAD")
    assert len(load_data("hf:org/noise:test").labels) == 12  # without a network
    with pytest.raises(InvalidInput, match="expected hf:org/noise:PART with one of the parts test, train, got val"):
        load_data("hf:org/noise:val")


def test_without_a_network_one_line_says_what_to_fetch(hub, monkeypatch):
    hub.shutdown()
    hub.server_close()
    with pytest.raises(
        Unavailable, match=r"fetch its files on a different machine, and name their folder here: hf:./FOLDER"
    ) as caught:
        load_data("hf:org/noise")
    assert "\n" not in str(caught.value)
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(MissingLibrary, match=r"davylamp\[hf\]"):
        load_data("hf:org/noise")
