"""Published data sets from files in torchvision's formats: every pixel and label; one line where they are missing."""

import gzip
import hashlib
import pickle

import numpy as np
import pytest
import torch
from scipy.io import savemat
from torchvision import datasets

from davylamp.adapters.data.datasets import dataset_name_patterns, load_data
from davylamp.errors import InvalidInput, Unavailable, UnknownName

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
LABELS = [3, 1, 0, 9, 2, 3]


@pytest.fixture
def cifar(tmp_path, monkeypatch):
    """CIFAR-10's files with six images, and their checksums in place of the published ones."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()

    def write(name, content):
        raw = pickle.dumps(content)
        (folder / name).write_bytes(raw)
        return [name, hashlib.md5(raw).hexdigest()]

    batch = {"data": PIXELS.transpose(0, 3, 1, 2).reshape(6, -1), "labels": LABELS}
    monkeypatch.setattr(datasets.CIFAR10, "test_list", [write("test_batch", batch)])
    monkeypatch.setattr(datasets.CIFAR10, "train_list", [write("data_batch_1", {**batch, "labels": LABELS[::-1]})])
    name, digest = write("batches.meta", {"label_names": list("abcdefghij")})
    meta = {"filename": name, "key": "label_names", "md5": digest}
    monkeypatch.setattr(datasets.CIFAR10, "meta", meta)
    return tmp_path


def test_cifar_has_its_pixels_and_labels(cifar):
    data = load_data(f"torchvision:cifar10:{cifar}", limit=5)
    assert torch.equal((data.inputs * 255).round().byte(), torch.from_numpy(PIXELS[:5]).permute(0, 3, 1, 2))
    assert data.labels.tolist() == LABELS[:5]
    assert data.names == ["0", "1", "2", "3", "4"]
    assert load_data(f"torchvision:cifar10-train:{cifar}").labels.tolist() == LABELS[::-1]


def test_a_damaged_file_is_one_line(cifar):
    with (cifar / "cifar-10-batches-py" / "test_batch").open("ab") as file:
        file.write(b"more")
    with pytest.raises(Unavailable, match=r"cifar-10-batches-py; put them there, or set DAVYLAMP_DOWNL"):
        load_data(f"torchvision:cifar10:{cifar}")


def test_mnist_and_svhn_have_theirs(tmp_path, monkeypatch):
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    grey = PIXELS[:, :28, :28, 0].copy()
    images = b"\0\0\x08\x03" + np.array(grey.shape, dtype=">i4").tobytes() + grey.tobytes()
    labels = b"\0\0\x08\x01" + np.array([6], dtype=">i4").tobytes() + bytes(LABELS)
    for name, content in (("images-idx3", images), ("labels-idx1", labels)):
        for part in ("t10k", "train"):
            (raw / f"{part}-{name}-ubyte").write_bytes(content)
            (raw / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(content))
    data = load_data(f"torchvision:mnist:{tmp_path}")
    assert torch.equal((data.inputs * 255).round().byte(), torch.from_numpy(grey)[:, None])
    assert data.labels.tolist() == LABELS

    file = tmp_path / "test_32x32.mat"
    savemat(file, {"X": PIXELS.transpose(1, 2, 3, 0), "y": np.array([each or 10 for each in LABELS])[:, None]})
    known = {"test": ["", file.name, hashlib.md5(file.read_bytes()).hexdigest()]}
    monkeypatch.setattr(datasets.SVHN, "split_list", known)
    data = load_data(f"torchvision:svhn:{tmp_path}")
    assert torch.equal((data.inputs * 255).round().byte(), torch.from_numpy(PIXELS).permute(0, 3, 1, 2))
    assert data.labels.tolist() == LABELS


def test_what_is_not_there_is_fetched_only_if_that_was_asked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    asked = []
    monkeypatch.setattr(datasets.CIFAR10, "download", lambda self: asked.append(str(self.root)))
    monkeypatch.delenv("DAVYLAMP_DOWNLOAD", raising=False)
    place = tmp_path / "datasets"
    with pytest.raises(
        Unavailable, match=rf"are missing: {place}.*; put them there, or set DAVYLAMP_DOWNLOAD=yes .*163 MB"
    ):
        load_data("torchvision:cifar10")
    assert asked == []
    monkeypatch.setenv("DAVYLAMP_DOWNLOAD", "yes")
    with pytest.raises(Unavailable) as caught:
        load_data("torchvision:cifar10")
    assert "\n" not in str(caught.value)
    assert asked == [str(place)]
    assert f"fetching torchvision:cifar10 (163 MB) to {place}" in capsys.readouterr().err


def test_an_unknown_set_is_named():
    with pytest.raises(UnknownName, match="unknown data set of torchvision 'cifar11'; did you mean cifar10"):
        load_data("torchvision:cifar11")
    assert any(each.startswith("torchvision:cifar10") for each in dataset_name_patterns())
    with pytest.raises((InvalidInput, UnknownName, Unavailable)):
        load_data("torchvision:")
