"""Perceptual measures against piq, dists-pytorch, scikit-image and loops over the definitions."""

import math
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import piq
import pytest
import torch
from scipy.ndimage import convolve
from skimage.metrics import structural_similarity as skimage_ssim

from davylamp.metrics import dists, multi_scale_gmsd, perceptual, structural_similarity

ALL = torch.ones(3, dtype=torch.bool)


def pair_of(*size, channels=3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(sum(size))
    inputs = torch.rand(3, channels, *size, dtype=dtype, generator=generator)
    return inputs, (inputs + 0.2 * torch.rand(inputs.shape, dtype=dtype, generator=generator)).clamp(0, 1)


@pytest.mark.parametrize("size", [(17, 17), (32, 48), (33, 48), (35, 29)], ids=str)
@pytest.mark.parametrize("chromatic", [False, True])
def test_edges_against_piq(size, chromatic):
    inputs, adv_inputs = pair_of(*size)
    expected = piq.multi_scale_gmsd(inputs, adv_inputs, chromatic=chromatic, reduction="none")
    values = multi_scale_gmsd(inputs, adv_inputs, ALL, chromatic=chromatic, reduction="none")
    torch.testing.assert_close(values, expected)


def test_edges_against_the_definition():
    inputs, adv_inputs = (each[0].numpy() for each in pair_of(32, 48))
    prewitt = np.array([[1, 0, -1]] * 3) / 3
    luma = [255 * np.tensordot([0.299, 0.587, 0.114], each, axes=1) for each in (inputs, adv_inputs)]
    total = 0
    for weight in (0.096, 0.596, 0.289, 0.019):
        a, b = (np.hypot(*(convolve(each, k, mode="constant") for k in (prewitt, prewitt.T))) for each in luma)
        similarity = (1.5 * a * b + 170) / (a**2 + b**2 - 0.5 * a * b + 170)
        total += weight * similarity.std() ** 2
        luma = [each.reshape(each.shape[0] // 2, 2, each.shape[1] // 2, 2).mean((1, 3)) for each in luma]
    value = multi_scale_gmsd(*pair_of(32, 48), ALL, reduction="none")[0]
    assert value == pytest.approx(math.sqrt(total))


def test_edges_of_grey_images_and_limits():
    inputs, adv_inputs = pair_of(20, 20, channels=1)
    expected = piq.multi_scale_gmsd(inputs, adv_inputs, reduction="none")
    torch.testing.assert_close(multi_scale_gmsd(inputs, adv_inputs, ALL, reduction="none"), expected)
    with pytest.raises(ValueError, match="expected images of 3 channels, got 1"):
        multi_scale_gmsd(inputs, adv_inputs, ALL, chromatic=True)
    with pytest.raises(ValueError, match="expected images of at least 17 x 17, got 16 x 20"):
        multi_scale_gmsd(inputs[:, :, :16], adv_inputs[:, :, :16], ALL)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_images(dtype, vgg):
    inputs, _ = pair_of(32, 32, dtype=dtype)
    assert multi_scale_gmsd(inputs, inputs, ALL) == pytest.approx(0, abs=1e-7)
    assert multi_scale_gmsd(inputs, inputs, ALL, chromatic=True) == pytest.approx(0, abs=1e-7)
    assert structural_similarity(inputs, inputs, ALL) == pytest.approx(1)
    assert dists(inputs, inputs, ALL, features=vgg) == pytest.approx(0, abs=2e-7)


def test_structure_against_scikit_image():
    inputs, adv_inputs = pair_of(25, 31)
    expected = [
        skimage_ssim(
            x.numpy(),
            y.numpy(),
            channel_axis=0,
            data_range=1.0,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
        )
        for x, y in zip(inputs, adv_inputs, strict=True)
    ]
    assert structural_similarity(inputs, adv_inputs, ALL, reduction="none").tolist() == pytest.approx(expected)
    with pytest.raises(ValueError, match="expected images of at least 11 x 11, got 10 x 31"):
        structural_similarity(inputs[:, :, :10], adv_inputs[:, :, :10], ALL)


@pytest.fixture
def reference(vgg, monkeypatch):
    """The authors' DISTS on the same random VGG16."""
    module = pytest.importorskip("DISTS_pytorch.DISTS_pt")
    monkeypatch.setattr(module, "models", SimpleNamespace(vgg16=lambda **_: SimpleNamespace(features=vgg)))
    network = module.DISTS(load_weights=False)
    weights = torch.load(Path(module.__file__).with_name("weights.pt"), weights_only=True)
    network.alpha.data, network.beta.data = weights["alpha"], weights["beta"]
    return network.double()


@pytest.mark.parametrize("size", [(32, 32), (37, 45)], ids=str)
def test_textures_against_the_authors(reference, vgg, size):
    inputs, adv_inputs = pair_of(*size)
    with torch.no_grad():
        expected = reference(inputs, adv_inputs)
    values = dists(inputs, adv_inputs, ALL, features=vgg, reduction="none")
    torch.testing.assert_close(values, expected, rtol=0, atol=1e-8)
    assert (values > 1e-4).all()


def test_textures_against_piq(vgg, monkeypatch):
    """Beyond the rounding of the sum of its weights, to which the metric is more exact."""
    with np.load(Path(perceptual.__file__).parent / "data" / "dists_weights.npz") as stored:
        weights = {name: torch.from_numpy(stored[name]).view(1, -1, 1, 1) for name in ("alpha", "beta")}
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", lambda *_, **__: weights)
    monkeypatch.setattr("piq.perceptual.vgg16", lambda **_: SimpleNamespace(features=deepcopy(vgg)))
    reference = piq.DISTS(reduction="none")
    monkeypatch.setattr(reference, "weights", [each.double() for each in reference.weights])
    inputs, adv_inputs = pair_of(48, 64)
    expected = 1 - (1 - reference(inputs, adv_inputs)) / sum(float(each.double().sum()) for each in weights.values())
    values = dists(inputs, adv_inputs, ALL, features=vgg, reduction="none")
    torch.testing.assert_close(values, expected, rtol=0, atol=1e-9)


def test_only_images_that_count_are_computed(vgg):
    inputs, adv_inputs = pair_of(32, 32)
    some = torch.tensor([True, False, True])
    values = dists(inputs, adv_inputs, some, features=vgg, reduction="none")
    assert values.isnan().tolist() == [False, True, False]
    torch.testing.assert_close(
        values[some], dists(inputs[some], adv_inputs[some], ALL[:2], features=vgg, reduction="none")
    )
    assert dists(inputs, adv_inputs, ~ALL, features=vgg).isnan()


def test_features_from_a_file_or_a_whole_network(vgg, tmp_path):
    inputs, adv_inputs = pair_of(32, 32, dtype=torch.float32)
    expected = dists(inputs, adv_inputs, ALL, features=vgg)
    whole = {f"features.{name}": value for name, value in vgg.state_dict().items()} | {
        "classifier.0.bias": torch.ones(2)
    }
    torch.save(whole, tmp_path / "whole.pth")
    torch.save(vgg.state_dict(), tmp_path / "features.pth")
    torch.testing.assert_close(dists(inputs, adv_inputs, ALL, features=tmp_path / "whole.pth"), expected)
    torch.testing.assert_close(dists(inputs, adv_inputs, ALL, features=str(tmp_path / "features.pth")), expected)
    network = torch.nn.Module()
    network.features = vgg
    torch.testing.assert_close(dists(inputs, adv_inputs, ALL, features=network), expected)
    assert next(vgg.parameters()).dtype == torch.float64  # the caller's network is left as it is


def test_without_weights_it_says_how_to_provide_them(tmp_path, monkeypatch):
    inputs, adv_inputs = pair_of(32, 32)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(FileNotFoundError, match="give `features` a torchvision VGG16 or the path") as caught:
        dists(inputs, adv_inputs, ALL)
    assert "\n" not in str(caught.value)
    torch.save({"features.0.weight": torch.zeros(2)}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match="expected VGG16 weights"):
        dists(inputs, adv_inputs, ALL, features=tmp_path / "other.pth")
    with pytest.raises(ValueError, match="expected the layers of a VGG16"):
        dists(inputs, adv_inputs, ALL, features=torch.nn.Linear(2, 2))
    with pytest.raises(TypeError, match="expected features to be a module or a path, got int"):
        dists(inputs, adv_inputs, ALL, features=3)
    with pytest.raises(ValueError, match="expected images of 3 channels, got 1"):
        dists(inputs[:, :1], adv_inputs[:, :1], ALL)
