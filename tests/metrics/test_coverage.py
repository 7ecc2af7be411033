"""Neuron coverage by hand and against loops."""

import pytest
import torch

from davylamp.metrics import boundary_coverage, multisection_coverage, strong_activation_coverage, top_k_coverage

LOW, HIGH = torch.tensor([0.0, 0.0, 2.0]), torch.tensor([1.0, 4.0, 2.0])


def test_sections_by_hand():
    activations = torch.tensor([[0.0, 4.0, 2.0], [0.6, 0.5, 2.0], [1.5, -1.0, 3.0]])
    # neuron 0: sections 0 and 2 of 4; neuron 1: 3 (its closed end) and 0; neuron 2, without a range: 0
    assert multisection_coverage(activations, LOW, HIGH, 4) == pytest.approx(5 / 12)
    assert multisection_coverage(activations, LOW, HIGH, 1) == 1
    assert boundary_coverage(activations, LOW, HIGH) == pytest.approx((2 + 1) / 6)
    assert strong_activation_coverage(activations, LOW, HIGH) == pytest.approx(2 / 3)


def test_ends_of_the_range_are_inside():
    ends = torch.stack([LOW, HIGH])
    assert boundary_coverage(ends, LOW, HIGH) == 0
    assert strong_activation_coverage(ends, LOW, HIGH) == 0


def test_sections_against_a_loop(arguments):
    activations, low, high = (arguments[name] for name in ("activations", "low", "high"))
    for sections in (1, 3, 10):
        met = set()
        for image in activations.flatten(1).tolist():
            for neuron, value in enumerate(image):
                if 0.1 <= value <= 0.9:
                    met.add((neuron, min(int((value - 0.1) / 0.8 * sections), sections - 1)))
        expected = len(met) / (sections * 54)
        assert multisection_coverage(activations, low, high, sections) == pytest.approx(expected)


def test_top_k_against_a_loop(arguments):
    layers = arguments["layers"]
    for k in (1, 3):
        met = {
            (number, neuron)
            for number, layer in enumerate(layers)
            for image in layer.flatten(1)
            for neuron in image.argsort(descending=True)[:k].tolist()
        }
        assert top_k_coverage(layers, k) == pytest.approx(len(met) / (54 + 8))
    assert top_k_coverage([layers[1]], 8) == 1


def test_channels_are_means_over_positions(arguments):
    maps = arguments["activations"]
    means = maps.mean((2, 3))
    low, high = means.amin(0), means.amax(0)
    for function in (boundary_coverage, strong_activation_coverage):
        assert function(maps + 0.01, low, high, neurons="channel") == function(means + 0.01, low, high)
    by_channel = multisection_coverage(maps, low, high, 5, neurons="channel")
    assert by_channel == multisection_coverage(means, low, high, 5)
    assert top_k_coverage([maps], 2, neurons="channel") == top_k_coverage([means], 2)


def test_more_images_never_cover_less(arguments):
    activations, low, high = (arguments[name] for name in ("activations", "low", "high"))
    some = [float(multisection_coverage(activations[:n], low, high, 4)) for n in range(13)]
    assert some == sorted(some)
    assert some[0] == 0


def test_refusals():
    activations = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="expected low <= high"):
        boundary_coverage(activations, HIGH, LOW)
    with pytest.raises(ValueError, match=r"expected low of shape \(3\), got \(2,\)"):
        boundary_coverage(activations, LOW[:2], HIGH[:2])
    with pytest.raises(ValueError, match="expected sections >= 1, got 0"):
        multisection_coverage(activations, LOW, HIGH, 0)
    with pytest.raises(ValueError, match="expected k from 1 to 3, the number of neurons of the smallest layer, got 4"):
        top_k_coverage([activations, torch.zeros(2, 9)], 4)
    with pytest.raises(ValueError, match="expected k from 1 to 0"):
        top_k_coverage([], 1)
