"""A stranger's images are read in a sandbox: the same pixels come out, and no parser of them runs in this process."""

import faulthandler

import numpy as np
import pytest
import torch
from PIL import Image

from davylamp.adapters.data import datasets
from davylamp.adapters.data.datasets import load_data, load_data_for
from davylamp.adapters.models.classifier import Classifier
from davylamp.adapters.models.sandbox.bubblewrap import find_sandbox
from davylamp.adapters.models.sandbox.isolation import Isolation, attack_isolation_context
from davylamp.adapters.models.sandbox.model_process import read_apart
from davylamp.adapters.models.sandbox.worker_client import Worker
from davylamp.errors import InvalidInput, Unavailable

pytestmark = pytest.mark.skipif(not find_sandbox().program, reason=find_sandbox().reason)
STRICT = Isolation("strict", 60.0, 4.0)


@pytest.fixture
def files(tmp_path):
    """Names of data, of several kinds of pictures and of arrays."""
    generator = np.random.default_rng(0)
    for label, mode in enumerate(("RGB", "L", "RGBA", "P", "CMYK")):
        (tmp_path / f"pictures/{label}").mkdir(parents=True)
        ending = "jpg" if mode == "CMYK" else "png"
        pixels = Image.fromarray(generator.integers(0, 255, (20, 24, 3), dtype=np.uint8)).convert(mode)
        pixels.save(tmp_path / f"pictures/{label}/a.{ending}")
    np.savez(tmp_path / "bytes.npz", x=generator.integers(0, 255, (6, 8, 8, 3), dtype=np.uint8), y=np.arange(6))
    np.savez(tmp_path / "floats.npz", x=generator.random((6, 1, 8, 8), dtype=np.float32), y=np.arange(6))
    return [f"imagefolder:{tmp_path}/pictures", f"npz:{tmp_path}/bytes.npz", f"npz:{tmp_path}/floats.npz"]


def no_parsing(*_, **__):
    raise AssertionError("a stranger's file was parsed in this process")


def test_pixels_labels_and_names_are_those_that_are_read_here(files, monkeypatch, digits):
    here = [load_data(name, limit=4, resize=16, crop=12) for name in files]
    small = Classifier(digits.module, num_classes=10, name="net", resize=16, crop=16)
    of_model = load_data_for(small, files[0])
    monkeypatch.setattr(Image, "open", no_parsing)
    monkeypatch.setattr(datasets, "open_picture", no_parsing)
    monkeypatch.setattr(np.lib.format, "read_array", no_parsing)
    with attack_isolation_context(STRICT):
        apart = [load_data(name, limit=4, resize=16, crop=12) for name in files]
        again = load_data_for(small, files[0])
    for ours, theirs in zip([*here, of_model], [*apart, again], strict=True):
        assert torch.equal(ours.inputs, theirs.inputs)
        assert torch.equal(ours.labels, theirs.labels)
        assert ours.names == theirs.names


def test_what_is_wrong_with_a_file_is_said_as_here(files, tmp_path):
    (tmp_path / "pictures/0/a.png").write_bytes(b"no picture")
    (tmp_path / "bytes.npz").write_bytes(b"PK\x03\x04 no archive")
    for name, kind in ((files[0], Unavailable), (files[1], InvalidInput)):
        said = []
        for isolation in (Isolation(), STRICT):
            with attack_isolation_context(isolation), pytest.raises(kind) as caught:
                load_data(name)
            said.append(str(caught.value))
        assert said[0] == said[1]


def test_a_process_that_dies_is_said(files):
    with pytest.raises(Unavailable) as caught:
        read_apart(faulthandler._sigsegv, [1], [], STRICT, torch.uint8)
    assert "SIGSEGV" in str(caught.value)


GREY, ZEROS = torch.zeros(6, 1, 8, 8), torch.zeros(6, dtype=torch.int64)
TAKEN_OVER = {
    "nothing": [],
    "labels that are no integers": [GREY, torch.zeros(6)],
    "too few labels": [GREY, ZEROS[:5]],
    "NaN": [GREY * torch.nan, ZEROS],
    "out of range": [GREY + 2, ZEROS],
    "no images": [GREY.flatten(1), ZEROS],
    "labels below 0": [GREY, ZEROS - 1],
}


def test_nothing_but_images_comes_from_a_parser_that_was_taken_over(files, monkeypatch):
    """As a stranger's file might by a hole in a parser: the process may then answer anything."""
    taken = []
    with attack_isolation_context(STRICT):
        for what, given in TAKEN_OVER.items():
            monkeypatch.setattr(Worker, "ask", lambda *_, given=given, **__: ({}, given))
            for file in files[:2]:
                try:
                    load_data(file)
                except (Unavailable, InvalidInput):
                    continue
                taken.append((what, file))
    assert taken == []
