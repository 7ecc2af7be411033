"""Files that come in: hashed while streamed, stored once, limited, checked without being run; and those that lie."""

import io
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sqlalchemy import func, select

from davylamp.errors import InvalidInput, UnknownName
from davylamp.server.accounts.audit import Origin
from davylamp.server.components.blobs import blob_path, clean_uploads, take_upload, used_bytes
from davylamp.server.components.registration import ForbiddenError, delete, withdraw
from davylamp.server.components.validation import engine_name
from davylamp.server.database.records import BlobRow, ComponentRow
from davylamp.server.tasks.preparing import ExecutorSettings, prepare
from davylamp.server.tasks.submission import TaskRequest, submit

from .conftest import ATTACK

DIGEST = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"  # of "hello", as sha256sum has it


def archive(files, compression=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return buffer.getvalue()


def encrypted():
    content = bytearray(archive({"0/a.png": b"x"}))
    content[content.index(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


UNCLOSED = b"\x93NUMPY\x01\x00" + (40).to_bytes(2, "little") + b"{'descr': '<f4', 'shape': (2,".ljust(39) + b"\n"


class Stranger:
    """Something that a pickle can name."""


def objects():
    buffer = io.BytesIO()
    np.savez(buffer, inputs=np.array([Stranger()], dtype=object), labels=[0])
    return buffer.getvalue()


def saved(thing):
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    return buffer.getvalue()


def test_an_upload_is_hashed_as_it_comes_and_nothing_is_left_of_one_that_fails(folder):
    upload = take_upload(folder.uploads, iter([b"hel", b"lo"]), 1)
    assert (upload.digest, upload.size, upload.path.read_bytes()) == (DIGEST, 5, b"hello")
    upload.path.unlink()

    def breaks_off():
        yield b"half"
        raise ConnectionResetError

    for chunks, error in (
        (iter([b"x" * 1000] * 1100), InvalidInput),
        (iter([]), InvalidInput),
        (breaks_off(), OSError),
    ):
        with pytest.raises(error):
            take_upload(folder.uploads, chunks, 1)
        assert list(folder.uploads.iterdir()) == []


def test_the_same_bytes_are_stored_once_and_go_with_the_last_that_needs_them(folder, users, add):
    one = add(users["alice"], "attack", "code", "sign_step", "a.py", ATTACK.encode(), name="one")
    two = add(users["bob"], "attack", "code", "sign_step", "b.py", ATTACK.encode(), name="two")
    with folder.database.writing() as session:
        digest = session.get_one(ComponentRow, one).blob
        assert session.get_one(ComponentRow, two).blob == digest
        assert session.scalar(select(func.count()).select_from(BlobRow)) == 1
        assert used_bytes(session, users["alice"].id) == len(ATTACK.encode())
        path = blob_path(folder.blobs, digest)
        assert [each for each in folder.blobs.rglob("*") if each.is_file()] == [path]
        delete(session, folder, users["alice"], one, Origin("alice"))
        assert path.is_file()
        delete(session, folder, users["bob"], two, Origin("bob"))
        assert not path.exists()
        assert session.scalar(select(func.count()).select_from(BlobRow)) == 0


def test_the_same_bytes_may_come_and_go_at_once(folder, users, add):
    def come_and_go(place):
        for turn in range(3):
            number = add(
                users["alice"], "attack", "code", "sign_step", "a.py", ATTACK.encode(), name=f"x{place}-{turn}"
            )
            if place % 2:
                with folder.database.writing() as session:
                    delete(session, folder, users["alice"], number, Origin("alice"))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(come_and_go, range(6)))
    with folder.database.reading() as session:
        (row,) = session.scalars(select(BlobRow)).all()
        assert session.scalar(select(func.count()).where(ComponentRow.blob == row.digest)) == 9
    assert blob_path(folder.blobs, row.digest).read_bytes() == ATTACK.encode()


def test_what_a_task_refers_to_is_archived_and_what_is_withdrawn_starts_no_task(folder, users, embedded, add):
    number = add(users["alice"], "attack", "code", "sign_step", "a.py", ATTACK.encode())
    settings = {"models": [embedded["demo:mnist-lenet5"]], "data": [embedded["demo:mnist"]], "attacks": [number]}
    with folder.database.writing() as session:
        withdraw(session, users["alice"], number)
        with pytest.raises(InvalidInput, match="it is withdrawn"):
            submit(session, folder, users["alice"], TaskRequest(settings))
        withdraw(session, users["alice"], number, back=True)
        submit(session, folder, users["alice"], TaskRequest(settings))
        assert delete(session, folder, users["alice"], number, Origin("alice")) == "archived"
        row = session.get_one(ComponentRow, number)
        assert blob_path(folder.blobs, row.blob).is_file()
        with pytest.raises(InvalidInput, match="it is archived"):
            submit(session, folder, users["alice"], TaskRequest(settings))


def test_a_user_has_a_quota(folder, users, add):
    for number in range(2):
        add(users["alice"], "data", "npz", "", "d.npz", random_npz(number), name=f"d{number}")
    with pytest.raises(InvalidInput, match="exceed 16 MiB together"):
        add(users["alice"], "data", "npz", "", "d.npz", random_npz(2), name="d2")
    add(users["bob"], "data", "npz", "", "d.npz", random_npz(2), name="d2")


def random_npz(seed):
    buffer = io.BytesIO()
    np.savez(buffer, inputs=np.random.default_rng(seed).integers(0, 256, (1, 3, 1500, 1600), np.uint8), labels=[0])
    return buffer.getvalue()


def test_a_version_is_never_replaced_and_names_are_plain(folder, users, add):
    add(users["alice"], "attack", "named", "foolbox:pgd", name="mine", version="1.0")
    with pytest.raises(InvalidInput, match=r"mine 1\.0 already exists"):
        add(users["alice"], "attack", "named", "foolbox:fgsm", name="mine", version="1.0")
    add(users["bob"], "attack", "named", "foolbox:fgsm", name="mine", version="1.0")
    for wrong in ("../x", "<script>", "a b", "", "a/b", "A", "x" * 61, "a\n", "e\x1b[2J"):
        with pytest.raises(InvalidInput, match="expected a name"):
            add(users["alice"], "attack", "named", "foolbox:pgd", name=wrong)
    for wrong in ("..", "1/2", ""):
        with pytest.raises(InvalidInput, match="expected a version"):
            add(users["alice"], "attack", "named", "foolbox:pgd", name="x", version=wrong)


@pytest.mark.parametrize(
    ("kind", "form", "entry", "file_name", "content", "message"),
    [
        ("attack", "code", "sign_step", "../a.py", ATTACK.encode(), "Python file as NAME.py"),
        ("attack", "code", "other", "a.py", ATTACK.encode(), "unknown attack in a.py"),
        ("attack", "code", "a.b", "a.py", ATTACK.encode(), "the name of a function or object in the Python file"),
        ("attack", "code", "x", "a.py", b"def (", "got a syntax error"),
        ("attack", "named", "my.py:f", "", None, "name of a attack|name of an attack"),
        ("attack", "named", "foolbox:pdg", "", None, "did you mean .*pgd"),
        ("attack", "onnx", "", "a.onnx", b"\x08\x07", "as one of named, code"),
        ("model", "named", "demo:nothing", "", None, "unknown model"),
        ("model", "named", "/etc/passwd.py:f", "", None, "expected the name of a model"),
        ("model", "weights", "file.py:net", "w.pth", saved({}), "architecture"),
        ("model", "weights", "torchvision:resnet18", "w.pth", b"\x80\x02pickle", "state_dict"),
        ("model", "weights", "torchvision:resnet18", "w.pth", saved({"x": Stranger()}), "a pickle with .*Stranger"),
        ("model", "weights", "torchvision:resnet18", "w.pth", archive({"a.txt": b""}), "that torch cannot read"),
        ("model", "onnx", "", "m.onnx", saved({}), "expected an ONNX file"),
        ("model", "code", "net", "m.py", None, "expected a file"),
        ("data", "named", "imagefolder:/etc", "", None, "expected the name"),
        ("data", "named", "demo:mnist+smoke:2", "", None, "unknown corruption"),
        ("data", "npz", "", "d.npz", archive({"a.pkl": b"x"}), "contains only arrays"),
        ("data", "npz", "", "d.npz", b"no zip at all", "ZIP archive"),
        ("data", "npz", "", "d.npz", objects(), "got Python objects or other content in 'inputs.npy'"),
        ("data", "npz", "", "d.npz", archive({"inputs.npy": b"\x93NUMPY"}), "or other content"),
        ("data", "folder", "", "d.zip", archive({"../../evil.png": b"x"}), "stay inside the archive's folder"),
        ("data", "folder", "", "d.zip", archive({"/etc/evil.png": b"x"}), "stay inside the archive's folder"),
        ("data", "folder", "", "d.zip", archive({"a/b.py": b"x"}), "images and labels.csv"),
        ("data", "folder", "", "d.zip", archive({"0/": b""}), "expected images in the archive"),
        ("data", "folder", "", "d.zip", encrypted(), "stored or deflated"),
        ("data", "npz", "", "d.npz", archive({"inputs.npy": UNCLOSED}), "or other content"),
        (
            "data",
            "folder",
            "",
            "d.zip",
            archive({"0/bomb.png": bytes(300 << 20)}),
            "unpacks to at most 200 times its size",
        ),
        ("defence", "named", "jpeg:quality=1000", "", None, "quality"),
        ("defence", "named", "ensemble:net.py:build", "", None, "name of a model"),
        ("defence", "named", "davylamp:ensemble:weights.pt", "", None, "name of a model"),
        ("defence", "named", "purify:net.py:build", "", None, "name of a model"),
        ("defence", "named", "ensemble:ensemble:demo:digits-cnn", "", None, "name of a model"),
    ],
)
def test_files_and_names_that_are_not_what_they_say_are_refused(  # noqa: PLR0917 - columns of a table
    folder, users, add, kind, form, entry, file_name, content, message
):
    with pytest.raises((InvalidInput, UnknownName), match=message):
        add(users["alice"], kind, form, entry, file_name, content)
    with folder.database.reading() as session:
        assert session.scalar(select(func.count()).where(ComponentRow.creator_id == users["alice"].id)) == 0


def test_a_link_in_an_archive_is_refused(folder, users, add):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        info = zipfile.ZipInfo("0/passwd.png")
        info.external_attr = 0o120777 << 16
        opened.writestr(info, "/etc/passwd")
    with pytest.raises(InvalidInput, match="a link or a device"):
        add(users["alice"], "data", "folder", "", "d.zip", buffer.getvalue())


def test_only_an_admin_lets_the_server_ask_other_machines(users, add):
    address = "http://169.254.169.254/v2/models/secret"
    with pytest.raises(ForbiddenError, match="only admins"):
        add(users["alice"], "model", "url", address)
    assert add(users["root"], "model", "url", address)
    assert add(users["root"], "model", "url", "json+https://lab.example/predict", name="other")
    with pytest.raises(InvalidInput, match="/v2/models/NAME"):
        add(users["root"], "model", "url", "http://lab.example/v1/predict", name="third")


def test_files_are_laid_out_by_readable_names_that_stay_the_same(folder, users, embedded, add, digit_file):
    attack = add(users["alice"], "attack", "code", "sign_step", "a.py", ATTACK.encode(), name="step", version="2")
    data = add(users["alice"], "data", "npz", "", "x.npz", digit_file, name="mine")
    pictures = archive({"all/0/a.png": b"x", "all/1/b.png": b"y"})
    photos = add(users["alice"], "data", "folder", "", "photos.zip", pictures, name="photos")
    weights = add(users["alice"], "model", "weights", "torchvision:resnet18", "w.pt", saved({}), name="net")
    settings = {"models": [weights], "attacks": [attack], "data": [data, photos], "defences": []}
    with folder.database.writing() as session:
        task = submit(session, folder, users["alice"], TaskRequest(settings)).id
    with folder.database.reading() as session:
        prepared = prepare(session, folder, task, ExecutorSettings())
        names = {row.id: row for row in session.scalars(select(ComponentRow))}
    room = prepared.folder / "room"
    assert list(prepared.models) == ["alice/model-net-1/weights.pth+torchvision:resnet18"]
    assert (room / "alice/attack-step-2/a.py").read_text() == ATTACK
    assert sorted(path.name for path in (room / "alice/data-photos-1/images").iterdir()) == ["0", "1"]
    assert engine_name(names[photos], "alice/data-photos-1") == "imagefolder:alice/data-photos-1/images"
    assert prepared.has_files


def test_uploads_that_nobody_ended_are_forgotten(folder):
    import os

    old, new = folder.uploads / "old", folder.uploads / "new"
    for path in (old, new):
        path.write_bytes(b"x")
    os.utime(old, (1, 1))
    clean_uploads(folder.uploads)
    assert list(folder.uploads.iterdir()) == [new]
