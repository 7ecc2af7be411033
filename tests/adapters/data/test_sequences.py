"""Frames of ImageNet-P's sequences: what each is at the places where it has a closed form."""

import numpy as np
import pytest
import torch
from skimage.color import rgb2hsv

from davylamp.adapters.data.corruptions.sequences import SEQUENCES, SMALL_SEQUENCES, frames_of
from davylamp.errors import DavylampError


@pytest.fixture(scope="module")
def photograph():
    generator = torch.Generator().manual_seed(1)
    coarse = torch.rand(1, 3, 6, 6, generator=generator)
    image = torch.nn.functional.interpolate(coarse, size=(80, 80), mode="bilinear")[0] * 0.5 + 0.2
    return image.mul(255).round() / 255


@pytest.fixture(scope="module")
def frames(photograph):
    return {name: frames_of(photograph, name) for name in SEQUENCES}


def test_shapes_and_seeds(photograph, frames):
    for name, row in SEQUENCES.items():
        assert frames[name].shape == (row.frames, 3, 80, 80)
        assert 0 <= frames[name].min() <= frames[name].max() <= 1
        again = frames_of(photograph, name)
        assert torch.equal(again, frames[name])
    assert not torch.equal(frames["snow"], frames_of(photograph, "snow", seed=1))
    assert [row.frames for row in SEQUENCES.values()] == [31] * 6 + [41] + [31] * 3


@pytest.mark.parametrize(
    ("name", "place"),
    [("gaussian_noise", 0), ("shot_noise", 0), ("zoom_blur", 0), ("brightness", 15), ("translate", 20), ("rotate", 15),
     ("scale", 24)],
)  # fmt: skip
def test_somewhere_it_is_the_clean_image(photograph, frames, name, place):
    assert (frames[name][place] - photograph).abs().max() < 1.5 / 255


def test_the_tilt_in_the_middle_is_seen_from_a_little_further_away(photograph, frames):
    """The authors put the image at depth 1 before moving it by the diagonal d: it shrinks by d / (d + 1)."""
    upright, side = frames["tilt"][15], 80
    shrunk = np.hypot(side, side) / (np.hypot(side, side) + 1)
    places = (torch.arange(80) - 40) / shrunk / 40  # -1 to 1 between the borders, as grid_sample has it
    places = places + 1 / 80
    grid = torch.stack(torch.meshgrid(places, places, indexing="xy"), 2).float()[None]
    expected = torch.nn.functional.grid_sample(photograph[None], grid, align_corners=False)[0]
    assert (upright - expected)[:, 3:77, 3:77].abs().max() < 3 / 255


def test_noise_has_its_strength(photograph, frames):
    noise = (frames["gaussian_noise"][1:] - photograph).std()
    assert noise == pytest.approx(0.03, rel=0.03)
    shots = (frames["shot_noise"][1:] - photograph).square().mean((0, 1, 2, 3))
    assert shots == pytest.approx(float(photograph.mean()) / 300, rel=0.05)


def test_steps_of_the_moving_ones(photograph, frames):
    moved = frames["translate"][40]  # 20 pixels to the right
    assert (moved[:, :, 20:] - photograph[:, :, :60]).abs().max() < 1.5 / 255
    assert moved[:, :, :20].max() == 0
    small = frames["scale"][0]  # 40 % around the middle
    assert small[:, :23].max() == 0
    assert small[:, 40, 40].mean() > 0.1
    values = [rgb2hsv(frame.permute(1, 2, 0).numpy())[:, :, 2].mean() for frame in frames["brightness"][[15, 20]]]
    assert values[1] - values[0] == pytest.approx(0.1, abs=0.01)  # five steps of 2 %


@pytest.fixture(scope="module")
def thumbnail(photograph):
    return photograph[:, 20:52, 20:52]


@pytest.fixture(scope="module")
def small_frames(thumbnail):
    return {name: frames_of(thumbnail, name) for name in SMALL_SEQUENCES}


@pytest.mark.parametrize(
    ("name", "place"),
    [("gaussian_noise", 0), ("shot_noise", 0), ("zoom_blur", 0), ("brightness", 15), ("translate", 7), ("rotate", 15),
     ("scale", 15)],
)  # fmt: skip
def test_small_images_have_the_steps_of_cifar_10_p(thumbnail, small_frames, name, place):
    assert list(SMALL_SEQUENCES) == list(SEQUENCES)
    assert [len(frames) for frames in small_frames.values()] == [31, 31, 21, 31, 31, 31, 16, 31, 31, 31]
    assert (small_frames[name][place] - thumbnail).abs().max() < 1.5 / 255


def test_the_strengths_of_small_ones(thumbnail, small_frames):
    assert (small_frames["gaussian_noise"][1:] - thumbnail).std() == pytest.approx(0.02, rel=0.05)
    shots = (small_frames["shot_noise"][1:] - thumbnail).square().mean((0, 1, 2, 3))
    assert shots == pytest.approx(float(thumbnail.mean()) / 700, rel=0.1)
    moved = small_frames["translate"][15]  # 8 pixels to the right
    assert (moved[:, :, 8:] - thumbnail[:, :, :24]).abs().max() < 1.5 / 255
    assert moved[:, :, :8].max() == 0
    bright = [rgb2hsv(frame.permute(1, 2, 0).numpy())[:, :, 2].mean() for frame in small_frames["brightness"][[15, 25]]]
    assert bright[1] - bright[0] == pytest.approx(0.15, abs=0.01)
    first, last = small_frames["scale"][[0, 30]]  # 70 % and 130 %
    assert first[:, :4].max() == 0
    assert first[:, 6].max() > 0.1
    assert last[:, 0].max() > 0.1
    turned, exact = small_frames["rotate"][0], _turned(thumbnail, -15)  # anticlockwise is positive here
    assert (turned - exact)[:, 8:24, 8:24].abs().max() < 4 / 255
    assert (turned - _turned(thumbnail, 15))[:, 8:24, 8:24].abs().max() > 8 / 255


def _turned(image, clockwise):
    """Turn an image by angle in degrees, in float."""
    angle = torch.tensor(np.deg2rad(-clockwise))
    matrix = torch.tensor([[angle.cos(), -angle.sin(), 0], [angle.sin(), angle.cos(), 0]])[None].float()
    grid = torch.nn.functional.affine_grid(matrix, [1, *image.shape], align_corners=False)
    return torch.nn.functional.grid_sample(image[None], grid, align_corners=False)[0]


def test_it_takes_photographs(photograph):
    with pytest.raises(DavylampError, match="Tiny ImageNet-P"):
        frames_of(photograph[:, :64, :64], "rotate")
    with pytest.raises(DavylampError, match="3 channels"):
        frames_of(photograph[:1], "rotate")
    assert np.array_equal(frames_of(photograph, "rotate"), frames_of(photograph, "rotate"))
