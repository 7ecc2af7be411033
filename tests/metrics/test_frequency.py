"""Frequency bands against PyWavelets, the identity of energies, and a re-derivation of the published program."""

import numpy as np
import pytest
import pywt
import torch

from davylamp.metrics import euclidean_distortion, high_frequency_distortion, low_frequency_distortion

ALL = torch.ones(1, dtype=torch.bool)


def pair_of(*size):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(4, 3, *size, dtype=torch.float64, generator=generator)
    noise = 0.1 * torch.rand(inputs.shape, dtype=torch.float64, generator=generator)
    return inputs, (inputs + noise).clamp(0, 1), torch.ones(4, dtype=torch.bool)


@pytest.fixture(params=[(18, 20), (17, 20), (18, 19), (17, 19), (1, 1)], ids=str)
def pair(request):
    return pair_of(*request.param)


@pytest.mark.parametrize("wavelet", pywt.wavelist(kind="discrete"))
def test_against_pywavelets(wavelet):
    check_wavelet(wavelet, *pair_of(19, 22))


@pytest.mark.parametrize("wavelet", ["haar", "db4", "bior2.2"])
def test_borders_against_pywavelets(wavelet, pair):
    check_wavelet(wavelet, *pair)


def check_wavelet(wavelet, inputs, adv_inputs, success):
    height, width = inputs.shape[-2:]
    change = (adv_inputs - inputs).numpy()
    approximation, _ = pywt.dwt2(change, wavelet, mode="symmetric")
    low = pywt.idwt2((approximation, (None, None, None)), wavelet)[..., :height, :width]
    for function, part in ((low_frequency_distortion, low), (high_frequency_distortion, change - low)):
        expected = np.sqrt(np.mean(part**2, axis=(1, 2, 3)))
        values = function(inputs, adv_inputs, success, wavelet=wavelet, reduction="none").tolist()
        assert values == pytest.approx(expected.tolist(), abs=1e-12)


def test_wavelets_that_there_are_not():
    with pytest.raises(ValueError, match="expected wavelet to be a discrete wavelet of PyWavelets"):
        low_frequency_distortion(*pair_of(8, 8), wavelet="mexh")  # a continuous one
    with pytest.raises(ValueError, match="use method='dwt'"):
        low_frequency_distortion(*pair_of(8, 8), wavelet="db4", method="published")


def test_energies_add_up(pair):
    low, high, both = (
        function(*pair, reduction="none")
        for function in (low_frequency_distortion, high_frequency_distortion, euclidean_distortion)
    )
    torch.testing.assert_close(low**2 + high**2, both**2)


def test_pure_bands():
    grey = torch.full((1, 3, 4, 6), 0.5, dtype=torch.float64)
    assert low_frequency_distortion(grey, grey + 0.1, ALL) == pytest.approx(0.1)
    assert high_frequency_distortion(grey, grey + 0.1, ALL) == pytest.approx(0, abs=1e-15)
    chequered = grey + 0.1 * torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64).repeat(2, 3)
    assert low_frequency_distortion(grey, chequered, ALL) == pytest.approx(0, abs=1e-15)
    assert high_frequency_distortion(grey, chequered, ALL) == pytest.approx(0.1)


def test_normalisations(pair):
    for function in (low_frequency_distortion, high_frequency_distortion):
        values = pair[0][0].numel()
        rms = function(*pair)
        assert function(*pair, normalisation="published") == pytest.approx(float(rms) / 3**0.5)
        assert function(*pair, normalisation="formula") == pytest.approx(float(rms) * values**0.5)
    with pytest.raises(ValueError, match="expected normalisation to be one of 'rms', 'published', 'formula'"):
        low_frequency_distortion(*pair, normalisation="l2")


def published_program(image, high):
    """Grey 8-bit image, Gaussian of the centred spectrum about the program's centre, stretched and cut to 8 bits."""
    grey = np.tensordot(np.array([0.299, 0.587, 0.114]), np.floor(image * 255 + 0.5), axes=1)
    spectrum = np.fft.fftshift(np.fft.fft2(grey))
    rows, columns = (np.arange(side) - int((side - 1) / 2) for side in grey.shape)
    gain = np.exp(-(rows[:, None] ** 2 + columns**2) / (2 * 5.0**2))
    part = np.abs(np.fft.ifft2(np.fft.ifftshift(spectrum * (1 - gain if high else gain))))
    part = (part - part.min() + 1e-5 * high) / (part.max() - part.min() + 1e-5)
    return np.array(part * 255, np.uint8) / 255


@pytest.mark.parametrize("size", [(18, 20), (17, 19)], ids=str)
def test_published_columns_are_swapped(images, size):
    inputs, adv_inputs, success = images
    inputs, adv_inputs = (each[..., : size[0], : size[1]].double() for each in (inputs, adv_inputs))
    for function, high in ((low_frequency_distortion, True), (high_frequency_distortion, False)):
        expected = [
            np.sqrt(np.mean((published_program(y.numpy(), high) - published_program(x.numpy(), high)) ** 2))
            for x, y, counts in zip(inputs, adv_inputs, success, strict=True)
            if counts
        ]
        assert function(inputs, adv_inputs, success, method="published") == pytest.approx(np.mean(expected))
        assert function(inputs, inputs, success, method="published") == 0


def test_published_method_takes_grey_and_flat_images():
    flat = torch.full((1, 1, 8, 8), 0.5)
    assert low_frequency_distortion(flat, flat + 0.1, ALL, method="published") == 0
    with pytest.raises(ValueError, match="expected images of 1 or 3 channels"):
        low_frequency_distortion(torch.rand(1, 4, 8, 8), torch.rand(1, 4, 8, 8), ALL, method="published")
