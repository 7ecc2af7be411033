"""Pixel distances by hand, against NumPy, piq and a loop over windows."""

import math

import numpy as np
import piq
import pytest
import torch

from davylamp.metrics import (
    euclidean_distortion,
    maximum_distortion,
    peak_signal_to_noise_ratio,
    perturbation_sensitivity_distance,
    pixel_change_ratio,
    pixel_rms_distance,
    relative_distortion,
)

ALL = torch.ones(1, dtype=torch.bool)
CLEAN = torch.tensor([[[[0.0, 0.5], [1.0, 0.5]], [[0.0, 0.0], [0.0, 0.0]]]], dtype=torch.float64)  # 1 x 2 x 2 x 2
MOVED = CLEAN.clone()
MOVED[0, 0, 0, 0], MOVED[0, 0, 1, 0] = 0.3, 0.6  # changes of 0.3 and -0.4: norm 0.5


def test_by_hand():
    assert maximum_distortion(CLEAN, MOVED, ALL) == pytest.approx(0.4)
    assert euclidean_distortion(CLEAN, MOVED, ALL) == pytest.approx(0.5 / math.sqrt(8))
    published = euclidean_distortion(CLEAN, MOVED, ALL, normalisation="published")
    assert published == pytest.approx(0.5 / math.sqrt(24))
    assert euclidean_distortion(CLEAN, MOVED, ALL, normalisation="formula") == pytest.approx(0.5 / 8)
    assert pixel_change_ratio(CLEAN, MOVED, ALL) == 2 / 8
    assert pixel_change_ratio(CLEAN, MOVED, ALL, unit="pixel") == 2 / 4
    for p, expected in ((0, 2 / 3), (1, 0.7 / 2), (2, 0.5 / math.sqrt(1.5)), (math.inf, 0.4)):
        assert relative_distortion(CLEAN, MOVED, ALL, p) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        (0.4 / 255, {"round": False, "truncate": False, "exact": True}),
        (-0.4 / 255, {"round": False, "truncate": True, "exact": True}),
        (0.6 / 255, {"round": True, "truncate": False, "exact": True}),
        (0.0, {"round": False, "truncate": False, "exact": False}),
    ],
)
def test_which_changes_show_in_8_bits(change, counts):
    clean = torch.full((1, 1, 1, 1), 100 / 255 + 1e-9, dtype=torch.float64)
    for rounding, expected in counts.items():
        assert pixel_change_ratio(clean, clean + change, ALL, rounding=rounding) == expected


def test_published_scale_of_a_sign_attack():
    # CANARY's Table 5: FGSM at 16/255 with 98.3 % of the values changed has AED 0.0353, just under this bound.
    inputs = torch.full((1, 3, 224, 224), 0.5)
    changed = torch.zeros(inputs.numel())
    changed[: round(0.983 * inputs.numel())] = 16 / 255
    value = euclidean_distortion(inputs, inputs + changed.view_as(inputs), ALL, normalisation="published")
    assert value == pytest.approx(0.0359, abs=5e-5)


def test_against_numpy(images):
    inputs, adv_inputs, success = images
    counted = [(x.numpy(), y.numpy()) for x, y, ok in zip(inputs, adv_inputs, success, strict=True) if ok]
    assert 0 < len(counted) < len(inputs)
    distances = {
        maximum_distortion: lambda x, y: np.abs(y - x).max(),
        euclidean_distortion: lambda x, y: np.linalg.norm((y - x).ravel()) / math.sqrt(x.size),
        pixel_change_ratio: lambda x, y: np.mean(np.floor(x * 255 + 0.5) != np.floor(y * 255 + 0.5)),
    }
    for function, distance in distances.items():
        assert function(inputs, adv_inputs, success) == pytest.approx(np.mean([distance(*pair) for pair in counted]))
    for p in (0, 1, 2, math.inf):
        ratios = [np.linalg.norm((y - x).ravel(), p) / np.linalg.norm(x.ravel(), p) for x, y in counted]
        assert relative_distortion(inputs, adv_inputs, success, p) == pytest.approx(np.mean(ratios))


def test_largest_is_not_below_root_mean_square(images):
    largest = maximum_distortion(*images, reduction="none")
    assert (euclidean_distortion(*images, reduction="none") <= largest).logical_or(largest.isnan()).all()


def test_images_that_do_not_count_are_undefined(images):
    inputs, adv_inputs, success = images
    for function in (maximum_distortion, euclidean_distortion, pixel_change_ratio, perturbation_sensitivity_distance):
        assert function(inputs, adv_inputs, success, reduction="none").isnan().equal(~success)
        assert function(inputs, adv_inputs, torch.zeros_like(success)).isnan()
        assert function(inputs, inputs, success) == 0


def test_a_black_image_has_no_relative_distortion():
    black = torch.zeros(1, 3, 4, 4)
    for p in (0, 1, 2, math.inf):
        assert relative_distortion(black, black + 0.1, ALL, p).isnan()
    with pytest.raises(ValueError, match="expected p to be one of 0, 1, 2, inf, got 3"):
        relative_distortion(black, black, ALL, 3)


def test_distance_and_decibels_of_8_bit_images(images):
    inputs, adv_inputs, _ = images
    levels = [np.floor(each.numpy() * 255 + 0.5) for each in (inputs, adv_inputs)]
    expected = np.sqrt(np.mean((levels[1] - levels[0]) ** 2, axis=(1, 2, 3)))
    assert pixel_rms_distance(inputs, adv_inputs, reduction="none").tolist() == pytest.approx(expected.tolist())
    ratio = peak_signal_to_noise_ratio(inputs, adv_inputs, reduction="none")
    stored = [torch.from_numpy(each / 255) for each in levels]
    torch.testing.assert_close(ratio, piq.psnr(*stored, reduction="none"), rtol=1e-4, atol=0)


def test_one_level_everywhere():
    grey = torch.full((1, 1, 5, 5), 100 / 255)
    assert pixel_rms_distance(grey, grey + 1 / 255) == pytest.approx(1)
    assert peak_signal_to_noise_ratio(grey, grey + 1 / 255) == pytest.approx(48.1308, abs=1e-4)
    assert pixel_rms_distance(grey, grey + 0.4 / 255) == 0
    assert peak_signal_to_noise_ratio(grey, grey) == math.inf
    assert pixel_rms_distance(torch.zeros(1, 1, 2, 2), torch.ones(1, 1, 2, 2)) == 255


@pytest.mark.parametrize(
    ("weighting", "weight"),
    [("inverse", lambda s: 1 / s), ("complement", lambda s: 1 - s), ("product", lambda s: s)],
)
def test_sensitivity_against_a_loop_over_windows(images, weighting, weight):
    inputs, adv_inputs = images[0][:1, :, :6, :7], images[1][:1, :, :6, :7]
    mirrored = np.pad(inputs[0].numpy(), ((0, 0), (1, 1), (1, 1)), mode="reflect")
    expected = sum(
        abs(float(adv_inputs[0, c, i, j] - inputs[0, c, i, j])) * weight(mirrored[c, i : i + 3, j : j + 3].std())
        for c in range(3)
        for i in range(6)
        for j in range(7)
    )
    value = perturbation_sensitivity_distance(inputs, adv_inputs, ALL, weighting=weighting)
    assert value == pytest.approx(expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_change_in_a_flat_region_is_infinitely_visible(dtype):
    flat = torch.full((1, 1, 5, 5), 0.3, dtype=dtype)
    flat[..., 4] = 0.9
    changed = flat.clone()
    assert perturbation_sensitivity_distance(flat, changed, ALL) == 0
    changed[0, 0, 2, 4] = 0.8
    assert perturbation_sensitivity_distance(flat, changed, ALL).isfinite()
    changed[0, 0, 2, 1] = 0.4
    assert perturbation_sensitivity_distance(flat, changed, ALL) == math.inf
    with pytest.raises(ValueError, match="expected images of at least 2 x 2, got 1 x 5"):
        perturbation_sensitivity_distance(flat[:, :, :1], flat[:, :, :1], ALL)


def test_many_images_are_worked_on_in_groups():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(70, 3, 64, 64, generator=generator)
    adv_inputs = (inputs + 0.1 * torch.rand(inputs.shape, generator=generator)).clamp(0, 1)
    values = maximum_distortion(inputs, adv_inputs, torch.ones(70, dtype=torch.bool), reduction="none")
    torch.testing.assert_close(values, (adv_inputs - inputs).abs().amax((1, 2, 3)))


@pytest.mark.parametrize("rounding", ["round", "truncate", "exact"])
def test_counting_leaves_the_images_as_they_are(images, rounding):
    copies = [each.clone() for each in images]
    pixel_change_ratio(*images, rounding=rounding)
    assert all(torch.equal(each, copy) for each, copy in zip(images, copies, strict=True))


@pytest.mark.parametrize("wrong", ["inputs", "adv_inputs"])
def test_images_outside_the_range_are_refused(images, wrong):
    named = dict(zip(("inputs", "adv_inputs", "success"), images, strict=True))
    with pytest.raises(ValueError, match=f"expected {wrong} to hold values between 0 and 1"):
        maximum_distortion(**named | {wrong: named[wrong] * 255})
    with pytest.raises(ValueError, match="expected success of type bool"):
        maximum_distortion(**named | {"success": named["success"].long()})
    with pytest.raises(ValueError, match=r"of type float, got torch\.uint8"):
        maximum_distortion(**named | {wrong: (named[wrong] * 255).byte()})
