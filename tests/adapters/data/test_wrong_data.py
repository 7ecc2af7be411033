"""Data that is not what it says: one line each, no hang, nothing taken for something else."""

import io
import os
import socket
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from davylamp.adapters.data.datasets import load_data, load_data_for
from davylamp.adapters.models.classifier import Classifier
from davylamp.errors import DavylampError, InvalidInput, Unavailable


def write_image(path, value=0, mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (4, 4), value).save(path)
    return path


@pytest.fixture
def folder(tmp_path):
    for name in ("ant", "bee"):
        write_image(tmp_path / name / "0.png")
    return tmp_path


def refusal(folder, kind="imagefolder", error=DavylampError):
    with pytest.raises(error) as caught:
        load_data(f"{kind}:{folder}")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_what_is_no_file_is_not_waited_for(folder, kind, monkeypatch):
    monkeypatch.chdir(folder)  # a socket's path is short
    if kind == "pipe":
        os.mkfifo("ant/1.png")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind("ant/1.png")
    else:
        os.symlink("/dev/zero", "ant/1.png")  # noqa: PTH211
    line = refusal(folder)
    assert line.endswith("ant/1.png: it is not a regular file; replace or remove it")


@pytest.mark.parametrize("place", ["labels.csv", "a.npz"])
def test_a_pipe_in_place_of_a_file(folder, place):
    os.mkfifo(folder / place)
    line = refusal(folder) if place == "labels.csv" else refusal(folder / place, "npz")
    assert f"at {folder / place}" in line


def test_links_that_lead_back_give_each_file_once(folder):
    (folder / "ant" / "loop").symlink_to(folder / "ant")
    (folder / "ant" / "again.png").symlink_to(folder / "ant" / "0.png")
    assert load_data(f"imagefolder:{folder}").names == ["ant/0.png", "bee/0.png"]


@pytest.mark.parametrize("target", [".", "bee"])
def test_links_into_another_class_are_refused(folder, target):
    (folder / "ant" / "link").symlink_to(folder / target)
    line = refusal(folder, error=InvalidInput)
    assert "expected each image in one class only, got the same file as ant/link/" in line
    assert "bee/0.png" in line


@pytest.mark.parametrize("splits", [["val"], ["train", "val"]])
def test_a_folder_of_class_folders_is_not_one_class(folder, tmp_path, splits):
    for split in splits:
        for name in ("ant", "bee"):
            write_image(tmp_path / "data" / split / name / "0.png")
    line = refusal(tmp_path / "data", error=InvalidInput)
    assert f"got folders of class folders; give imagefolder:{tmp_path / 'data' / splits[0]}" in line


def test_one_class_may_have_folders(tmp_path):
    write_image(tmp_path / "ant" / "deeper" / "0.png")
    assert load_data(f"imagefolder:{tmp_path}").labels.tolist() == [0]


def test_imagenet_s_folders_have_imagenet_s_classes(tmp_path):
    for name in ("n02123045", "n01440764"):  # tabby, tench
        write_image(tmp_path / name / "0.png")
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 1000))
    assert load_data_for(Classifier(net, num_classes=1000), f"imagefolder:{tmp_path}").labels.tolist() == [0, 281]
    assert load_data_for(Classifier(net, num_classes=2), f"imagefolder:{tmp_path}").labels.tolist() == [0, 1]
    assert load_data_for(Classifier(net), f"imagefolder:{tmp_path}").labels.tolist() == [0, 281]  # as it answers
    assert load_data_for(Classifier(nn.Sequential(net, nn.Linear(1000, 2))), f"imagefolder:{tmp_path}").labels[1] == 1
    write_image(tmp_path / "n99999999" / "0.png")
    with pytest.raises(InvalidInput, match=r"expected ImageNet's WordNet ids as class folders of .*, got n99999999"):
        load_data_for(Classifier(net, num_classes=1000), f"imagefolder:{tmp_path}")


def test_a_folder_that_is_no_class_does_not_move_imagenets_classes(tmp_path):
    write_image(tmp_path / "n01440764" / "0.png")
    write_image(tmp_path / "macosx" / "0.png")
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 1000))
    line = r"expected WordNet ids as names of all class folders of .*, got macosx among 2 folders; move"
    for model in (Classifier(net, num_classes=1000), Classifier(net)):
        with pytest.raises(InvalidInput, match=line):
            load_data_for(model, f"imagefolder:{tmp_path}")


@pytest.mark.parametrize(
    ("model", "mode", "channels"),
    [
        (nn.Conv2d(1, 2, 4), "L", 1),
        (nn.Conv2d(1, 2, 4), "RGB", 3),
        (nn.Conv2d(3, 2, 4), "L", 3),
        (nn.Linear(16, 2), "L", 3),
    ],
)
def test_grey_images_stay_grey_for_a_grey_model(tmp_path, model, mode, channels):
    write_image(tmp_path / "ant" / "0.png", 51 if mode == "L" else (51, 51, 51), mode)
    data = load_data_for(Classifier(model), f"imagefolder:{tmp_path}")
    assert torch.equal(data.inputs, torch.full((1, channels, 4, 4), 0.2))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("ant/0.png,12345678901234567890123", "an integer label >= 0 in line 2 of"),
        ("ant/0.png,²", "an integer label >= 0 in line 2 of"),
        ("ant/0.png,1\nant/0.png,2", "expected each file once, got 'ant/0.png' again in line 3 of"),
        ("ant/\x000.png,1", "labels.csv"),
    ],
)
def test_wrong_tables(folder, rows, words):
    (folder / "labels.csv").write_text(f"file,label\n{rows}\n", encoding="utf-8")
    line = refusal(folder)
    assert words in line or "could not read the image" in line


def png(size, body=b""):
    """A PNG whose header claims a size."""
    stream = io.BytesIO()
    Image.new("RGB", (4, 4)).save(stream, "PNG")
    content = bytearray(stream.getvalue())
    content[16:24] = size[0].to_bytes(4, "big") + size[1].to_bytes(4, "big")
    content[29:33] = (__import__("zlib").crc32(bytes(content[12:29]))).to_bytes(4, "big")
    return bytes(content) + body


@pytest.mark.parametrize("content", [b"text, not pixels", b"\x89PNG\r\n\x1a\n", png((60000, 60000)), png((8, 8))])
def test_images_that_are_none(folder, content):
    (folder / "ant" / "0.png").write_bytes(content)
    line = refusal(folder, error=Unavailable)
    assert f"could not read the image {folder / 'ant' / '0.png'}: " in line
    assert line.endswith("; replace or remove it")


def header(shape, dtype="<f4", fortran=False):
    stream = io.BytesIO()
    described = {"descr": dtype, "fortran_order": fortran, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, described)
    return stream.getvalue()


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


LABELS = npy(np.zeros(2, dtype=np.int64))
IMAGES = npy(np.zeros((2, 3, 4, 4), dtype=np.float32))


@pytest.mark.parametrize(
    ("members", "words"),
    [
        (
            {"x.npy": header((2**40, 3, 1, 2)), "y.npy": LABELS},
            "array x in .* does not match its header: .* takes 24 TiB",
        ),
        ({"x.npy": header((2, 3, 4, 4)) + b"abc", "y.npy": LABELS}, "takes 384 bytes, but there are 3 bytes of data"),
        ({"x.npy": header((-2, 3, 4, 4)), "y.npy": LABELS}, "array x .* does not match its header|broken header"),
        ({"x.npy": b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4'}", "y.npy": LABELS}, "as x in .*, got a broken header"),
        ({"x.npy": b"\x93NUMPY\x09\x00\x10\x00", "y.npy": LABELS}, "as x in .*, got a broken header"),
        ({"x.npy": b"text", "y.npy": LABELS}, "as x in .*, got a broken header"),
        ({"x": b"text", "y.npy": LABELS}, "as x in .*, got a broken header"),
        ({"x.npy": header((2,), "|O"), "y.npy": LABELS}, "expected an array of numbers as x in .*, got Python objects"),
        ({"x.txt": b"text"}, "expected an array named inputs or x or images in .*, got x.txt"),
        ({}, "expected an array named inputs or x or images in .*, got none"),
    ],
)
def test_wrong_members_of_an_npz(tmp_path, members, words):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(InvalidInput, match=words) as caught:
        load_data(f"npz:{tmp_path / 'a.npz'}")
    assert str(tmp_path / "a.npz") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_array_larger_than_memory_is_not_read(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((2, 3, 400, 400)), y=np.zeros(2, dtype=int))
    monkeypatch.setattr("davylamp.adapters.data.array_files._memory", lambda: 1 << 20)
    line = refusal(tmp_path / "a.npz", "npz", InvalidInput)
    assert line.startswith("expected the array x in ")
    assert line.endswith("got 7.32 MiB (float64, (2, 3, 400, 400))")


def test_an_encrypted_npz(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", IMAGES)
        archive.writestr("y.npy", LABELS)
    content = bytearray((tmp_path / "a.npz").read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = content.find(mark)
        while start >= 0:
            content[start + place] |= 1
            start = content.find(mark, start + 1)
    (tmp_path / "a.npz").write_bytes(content)
    assert "a.npz is encrypted" in refusal(tmp_path / "a.npz", "npz", InvalidInput)


def test_a_folder_of_an_archive_program_does_not_shift_the_classes(folder):
    (folder / "__MACOSX").mkdir()
    assert load_data(f"imagefolder:{folder}").labels.tolist() == [0, 1]


def test_one_file_under_two_spellings_has_one_class(folder):
    (folder / "labels.csv").write_text("file,label\nant/0.png,0\n./ant/0.png,1\n")
    assert "once" in refusal(folder, error=InvalidInput)


@pytest.mark.parametrize("limit", [4, 7, 12, None])
def test_arrays_sorted_by_class_give_one_image_of_each_class_first(tmp_path, limit):
    labels = np.repeat([0, 1, 3], [2, 5, 5])
    inputs = np.arange(12, dtype=np.uint8)[:, None, None, None] * np.ones((1, 3, 4, 4), np.uint8)
    np.savez(tmp_path / "sorted.npz", inputs=inputs, labels=labels)
    expected = [0, 2, 7, 1, 3, 8, 4, 9, 5, 10, 6, 11][:limit] if limit != 12 and limit else list(range(12))
    data = load_data(f"npz:{tmp_path / 'sorted.npz'}", limit=limit)
    assert (data.inputs[:, 0, 0, 0] * 255).round().int().tolist() == expected
    assert data.labels.tolist() == labels[expected].tolist()
    assert data.names == [str(place) for place in expected]
    np.savez(tmp_path / "mixed.npz", inputs=inputs, labels=labels[::-1])
    mixed = load_data(f"npz:{tmp_path / 'mixed.npz'}", limit=limit)
    assert mixed.names == [str(place) for place in range(12)][:limit]
