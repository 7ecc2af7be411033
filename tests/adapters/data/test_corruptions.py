"""Corruptions against the library called directly and the authors' parameters, seeding, names, sets on disk."""

import imagecorruptions
import numpy as np
import pytest
import torch
from PIL import Image
from skimage.color import hsv2rgb, rgb2hsv

import davylamp
from davylamp.adapters.data.corruptions import generate
from davylamp.adapters.data.corruptions.generate import corrupt_images, corruption_seed, severity_scale_for
from davylamp.adapters.data.corruptions.published import BENCHMARK, CORRUPTIONS, alexnet_errors
from davylamp.adapters.data.datasets import Data, load_data
from davylamp.adapters.data.streaming import iter_batches
from davylamp.adapters.models.classifier import Classifier
from davylamp.errors import DavylampError

WITH_SEED = ("glass_blur", "impulse_noise")


def photographs(side, count=2, channels=3):
    generator = torch.Generator().manual_seed(side)
    coarse = torch.rand(count, channels, 5, 5, generator=generator)
    return torch.nn.functional.interpolate(coarse, size=(side, side), mode="bicubic").clamp(0, 1)


def to_arrays(images):
    return [image.permute(1, 2, 0).mul(255).round().to(torch.uint8).numpy() for image in images]


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("severity", [1, 5])
def test_every_pixel_is_the_librarys(name, severity):
    images = photographs(72)
    made = corrupt_images(images, name, severity, seed=4)
    for image, pixels in zip(made, to_arrays(images), strict=True):
        seed = corruption_seed(pixels, name, severity, 4)
        np.random.seed(seed)
        more = {"seed": seed} if name in WITH_SEED else {}
        direct = imagecorruptions.corrupt(pixels, severity=severity, corruption_name=name, **more)
        assert np.array_equal(to_arrays(image[None])[0], direct)


def test_the_names_are_the_librarys_in_the_authors_order():
    assert list(CORRUPTIONS) == imagecorruptions.get_corruption_names("all")
    assert list(BENCHMARK) == imagecorruptions.get_corruption_names("common")
    errors = alexnet_errors(BENCHMARK)
    assert errors[0] == 0.886428
    assert errors[-1] == 0.6065
    with pytest.raises(DavylampError, match="speckle_noise"):
        alexnet_errors(["fog", "speckle_noise"])


@pytest.mark.parametrize("side", [32, 64])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_small_images_get_severities_of_their_size(name, side):
    """At 32 pixels the library's severity 1 does more than the authors' for CIFAR; stronger is further away."""
    images = photographs(side)
    clean = torch.tensor(np.stack(to_arrays(images)) / 255).permute(0, 3, 1, 2)
    made = [corrupt_images(images, name, severity) for severity in (1, 5)]
    assert all(each.shape == images.shape and each.min() >= 0 and each.max() <= 1 for each in made)
    weak, strong = ((each - clean).abs().mean() for each in made)
    if name in ("elastic_transform", "saturate"):  # their severities are of different kinds
        return
    assert weak < strong
    if side == 32:
        direct = [
            imagecorruptions.corrupt(
                pixels, severity=1, corruption_name=name, **({"seed": 0} if name in WITH_SEED else {})
            )
            for pixels in to_arrays(images)
        ]
        assert weak < np.abs(np.stack(direct) / 255 - clean.permute(0, 2, 3, 1).numpy()).mean()


def test_small_images_by_closed_form():
    """Those of CIFAR-10-C that a line of arithmetic gives."""
    image = photographs(32, 1)
    (pixels,) = to_arrays(image)
    values = pixels / 255
    expected = {
        "contrast": (values - values.mean((0, 1))) * 0.4 + values.mean((0, 1)),
        "gaussian_noise": None,
    }
    converted = rgb2hsv(values)
    converted[:, :, 2] = (converted[:, :, 2] + 0.15).clip(0, 1)
    expected["brightness"] = hsv2rgb(converted)
    np.random.seed(corruption_seed(pixels, "gaussian_noise", 3, 0))
    expected["gaussian_noise"] = values + np.random.normal(size=values.shape, scale=0.08)
    for name, wanted in expected.items():
        (got,) = to_arrays(corrupt_images(image, name, 3))
        assert np.array_equal(got, np.uint8(wanted.clip(0, 1) * 255)), name


def test_sizes():
    assert [severity_scale_for(side, 32) for side in (32, 33, 64, 65)] == [
        "cifar",
        "tiny-imagenet",
        "tiny-imagenet",
        "imagenet",
    ]


@pytest.mark.parametrize("name", ["gaussian_noise", "glass_blur", "impulse_noise", "frost", "snow"])
def test_an_image_does_not_depend_on_the_others(name):
    images = photographs(66, 3)
    before = np.random.get_state()[1].copy()
    whole = corrupt_images(images, name, 3)
    assert np.array_equal(before, np.random.get_state()[1])
    alone = torch.cat([corrupt_images(images[place : place + 1], name, 3) for place in (2, 0, 1)])
    assert torch.equal(whole, alone[[1, 2, 0]])
    assert not torch.equal(whole, corrupt_images(images, name, 3, seed=1))


def test_two_images_get_different_noise():
    plain = torch.stack([torch.full((3, 70, 70), level / 255) for level in (100.0, 130.0)])
    noise = corrupt_images(plain, "gaussian_noise", 1) - plain
    assert abs(float(np.corrcoef(noise[0].flatten(), noise[1].flatten())[0, 1])) < 0.05


@pytest.mark.parametrize(
    ("reason", "command"),
    [
        ("libGL.so.1: cannot open shared object file", "run: pip uninstall -y opencv-python && pip install"),
        ("No module named 'imagecorruptions'", 'pip install --no-deps "imagecorruptions-imaug'),
    ],
)
def test_what_is_missing_is_named_with_its_remedy(monkeypatch, reason, command):
    def fail(name):
        raise ImportError(reason)

    monkeypatch.setattr(generate, "import_module", fail)
    with pytest.raises(DavylampError) as caught:
        load_data("foolbox:cifar10+fog:3", limit=1)
    assert reason in str(caught.value)
    assert command in str(caught.value)


def test_grey_images():
    grey = photographs(70, 1, channels=1)
    made = corrupt_images(grey, "fog", 2)
    assert made.shape == grey.shape
    coloured = corrupt_images(grey.expand(-1, 3, -1, -1), "contrast", 2)
    assert torch.equal(corrupt_images(grey, "contrast", 2), coloured[:, :1])


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ("demo:imagenet+fog:0", "expected a severity from 1 to 5, as in fog:3, got 0"),
        ("demo:imagenet+fog:6", "expected a severity from 1 to 5, as in fog:3, got 6"),
        ("demo:imagenet+fog", "expected a severity from 1 to 5, as in fog:3, got none"),
        ("demo:imagenet+fgo:3", "unknown corruption 'fgo'; did you mean fog?"),
        ("foolbox:mnist+fog:3", "expected images of at least 32 x 32 for fog, got 28 x 28"),
        ("imagenet-c:there", "expected a corruption and its severity, as in imagenet-c:there+fog:3"),
        ("imagenet-c:there+fog:3", "no such folder"),
        ("cifar-10-c:there+fog:3", "no such folder"),
    ],
)
def test_one_line(data, line):
    with pytest.raises(DavylampError) as caught:
        load_data(data, limit=1)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_grey_images_that_cannot_have_it():
    with pytest.raises(DavylampError, match="frost adds colour"):
        corrupt_images(photographs(40, 1, channels=1), "frost", 1)
    with pytest.raises(DavylampError, match="32 x 32 for snow, got 8 x 8"):
        corrupt_images(torch.rand(1, 1, 8, 8), "snow", 1)


def test_by_name_and_by_function():
    clean = load_data("foolbox:cifar10", limit=3)
    named = load_data("foolbox:cifar10+jpeg-compression:2+contrast:1", limit=3)
    made = davylamp.corrupt(davylamp.corrupt(clean, "jpeg_compression", 2), "contrast", 1)
    assert torch.equal(named.inputs, made.inputs)
    assert isinstance(made, Data)
    assert named.names == clean.names


@pytest.fixture
def set_on_disk(tmp_path):
    """ImageNet-C's layout: two corruptions, one of them in a group, two severities, two classes."""
    for folder in ("fog", "noise/gaussian_noise", "near_focus"):
        for severity in (1, 2):
            for label, wordnet in enumerate(("n01440764", "n01443537")):
                path = tmp_path / folder / str(severity) / wordnet / f"{label}.JPEG"
                path.parent.mkdir(parents=True)
                Image.new("RGB", (40, 40), (severity * 20, label, len(folder))).save(path, quality=100)
    return tmp_path


def test_imagenet_c_is_read_as_it_is(set_on_disk):
    classifier = Classifier(torch.nn.Flatten(), num_classes=1000, resize=48, crop=40)
    for name in ("fog", "gaussian_noise", "near_focus"):
        (block,) = iter_batches(classifier, f"imagenet-c:{set_on_disk}+{name}:2", None, 5)
        assert block.inputs.shape == (2, 3, 40, 40)
        assert block.labels.tolist() == [0, 1]
        assert abs(block.inputs[0, 0, 0, 0] * 255 - 40) < 3
    blocks = list(iter_batches(classifier, f"imagenet-c:{set_on_disk}+fog:1", None, 1))
    assert [each.names for each in blocks] == [["n01440764/0.JPEG"], ["n01443537/1.JPEG"]]
    with pytest.raises(DavylampError, match="did you mean near_focus"):
        load_data(f"imagenet-c:{set_on_disk}+near_fokus:1")
    with pytest.raises(DavylampError, match="no folder for severity 5"):
        load_data(f"imagenet-c:{set_on_disk}+fog:5")


def test_cifar_10_c_is_read_as_it_is(tmp_path):
    images = np.arange(10, dtype=np.uint8)[:, None, None, None] * np.ones((1, 32, 32, 3), np.uint8)
    np.save(tmp_path / "fog.npy", images)
    np.save(tmp_path / "labels.npy", np.tile([3, 7], 5))
    data = load_data(f"cifar-10-c:{tmp_path}+fog:4")
    assert data.labels.tolist() == [3, 7]
    assert data.inputs[:, 0, 0, 0].mul(255).round().tolist() == [6, 7]
    assert len(load_data(f"cifar-10-c:{tmp_path}+fog:4", limit=1).labels) == 1
    np.save(tmp_path / "labels.npy", np.tile([3], 7))
    with pytest.raises(DavylampError, match="expected 2 or 10 labels"):
        load_data(f"cifar-10-c:{tmp_path}+fog:4")


def test_a_path_with_a_plus_is_a_path(tmp_path):
    folder = tmp_path / "a+fog"
    for label in "ab":
        (folder / label).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(folder / label / "0.png")
    assert len(load_data(f"imagefolder:{folder}").labels) == 2
    with pytest.raises(DavylampError, match="no such folder"):
        load_data(f"imagefolder:{tmp_path}/b+c")
