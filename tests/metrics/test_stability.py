"""Boundary distances on a linear model, where they are known, and the rest by hand and against loops."""

import math

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from davylamp.metrics import (
    boundary_steps,
    empirical_boundary_distance,
    neuron_sensitivity,
    neuron_uncertainty,
    noise_insensitivity,
    noise_ratios,
    orthogonal_directions,
    summarise,
)


@pytest.fixture
def boundary(linear):
    """Linear model of two classes, images inside the box and their exact margins along the weight."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(2, 12, dtype=torch.float64, generator=generator)
    weight[1] = 0
    weight[0] -= weight[0].mean()
    inputs = 0.5 + 0.06 * torch.randn(6, 3, 2, 2, dtype=torch.float64, generator=generator)
    model = linear(weight)
    return model, inputs, model(inputs).argmax(1), (inputs.flatten(1) @ weight[0]).abs(), weight[0]


def test_distance_along_the_normal_is_exact_up_to_the_grid(boundary):
    model, inputs, labels, margins, normal = boundary
    exact = margins / normal.norm() / math.sqrt(12) * 255
    direction = (normal / normal.norm() * math.sqrt(12)).reshape(1, 3, 2, 2)
    both = torch.cat([direction, -direction])
    grid = torch.arange(0, 127, 0.01, dtype=torch.float64)
    distance = empirical_boundary_distance(model, inputs, labels, both, grid, reduction="none")
    assert ((distance >= exact) & (distance <= exact + 0.0101)).all()


def test_no_direction_beats_the_exact_distance(boundary):
    model, inputs, labels, margins, normal = boundary
    exact = margins / normal.norm() / math.sqrt(12) * 255
    directions = orthogonal_directions(12, inputs[0])
    grid = torch.arange(0, 127, 2)
    distance = empirical_boundary_distance(model, inputs, labels, directions, grid, reduction="none")
    assert (distance >= exact).all()
    firsts = []
    for image, label in zip(inputs, labels, strict=True):
        tried = [float(grid[-1])]
        for direction in directions:
            for magnitude in grid.tolist():
                moved = (image + magnitude / 255 * direction).clamp(0, 1)[None]
                if model(moved).argmax(1) != label:
                    tried.append(magnitude)
                    break
        firsts.append(min(tried))
    assert distance.tolist() == firsts
    assert len(set(firsts)) > 2


def test_misclassified_is_at_distance_0_and_unreached_at_the_end(boundary):
    model, inputs, labels, _, _ = boundary
    direction, grid = orthogonal_directions(1, inputs[0]), torch.tensor([0.001, 0.01])
    wrong = labels.clone()
    wrong[0] = 1 - wrong[0]
    distance = empirical_boundary_distance(model, inputs, wrong, direction, grid, reduction="none")
    assert distance.tolist() == pytest.approx([0] + [0.01] * 5)
    with pytest.raises(ValueError, match="at least one magnitude; magnitudes must increase"):
        empirical_boundary_distance(model, inputs, labels, direction, grid.flip(0))


def test_directions_are_orthogonal_of_unit_mean_square():
    directions = orthogonal_directions(5, torch.zeros(3, 4, 4, dtype=torch.float64), seed=3)
    gram = directions.flatten(1) @ directions.flatten(1).T / 48
    torch.testing.assert_close(gram, torch.eye(5, dtype=torch.float64))
    assert torch.equal(directions, orthogonal_directions(5, torch.zeros(3, 4, 4, dtype=torch.float64), seed=3))
    with pytest.raises(ValueError, match="expected count from 1 to 48, got 49"):
        orthogonal_directions(49, torch.zeros(3, 4, 4))


def test_steps_against_the_known_number(boundary):
    model, inputs, labels, margins, normal = boundary
    steps = boundary_steps(model, inputs, labels, step_size=0.0005, reduction="none")
    known = margins / normal.abs().sum() / 0.0005
    assert torch.equal(steps, known.ceil())
    assert steps.max() > 3


def test_steps_towards_each_class(linear):
    """The least number of steps of the text: an attack on each other class, step by step in a loop of its own."""
    generator = torch.Generator().manual_seed(4)
    model = linear(torch.randn(8, 12, dtype=torch.float64, generator=generator))
    inputs = 0.5 + 0.1 * torch.randn(8, 3, 2, 2, dtype=torch.float64, generator=generator)
    labels = model(inputs).argmax(1)
    labels[0] = (labels[0] + 1) % 8
    known = []
    for image, label in zip(inputs, labels, strict=True):
        counts = []
        for target in {*range(8)} - {int(label)}:
            moved, count = image[None].clone(), 0
            while model(moved).argmax() == label and count < 60:
                leaf = moved.clone().requires_grad_()
                (-model(leaf).log_softmax(1)[0, target]).backward()
                moved, count = (moved - 0.002 * leaf.grad.sign()).clamp(0, 1), count + 1
            counts.append(count if model(moved).argmax() != label else math.inf)
        known.append(min(counts) if min(counts) < math.inf else math.nan)
    steps = boundary_steps(model, inputs, labels, 0.002, 60, towards="each", reduction="none")
    assert steps.tolist() == pytest.approx(known, nan_ok=True)
    assert steps[0] == 0 < steps.nan_to_num().max()
    assert not torch.equal(steps, boundary_steps(model, inputs, labels, 0.002, 60, reduction="none"))


def test_two_classes_have_one_direction(boundary):
    model, inputs, labels, _, _ = boundary
    each = boundary_steps(model, inputs, labels, towards="each", reduction="none")
    assert torch.equal(each, boundary_steps(model, inputs, labels, reduction="none"))


def test_steps_at_the_limit_are_left_out(boundary):
    model, inputs, labels, _, _ = boundary
    steps = boundary_steps(model, inputs, labels, reduction="none")
    limit = int(steps.median())
    capped = boundary_steps(model, inputs, labels, limit=limit, reduction="none")
    torch.testing.assert_close(capped, steps.where(steps <= limit, math.nan), equal_nan=True)
    assert capped.isnan().any()
    assert boundary_steps(model, inputs, 1 - labels, reduction="none").tolist() == [0] * 6
    assert all(parameter.grad is None for parameter in model.parameters())
    with pytest.raises(ValueError, match="expected step_size > 0 and limit >= 1"):
        boundary_steps(model, inputs, labels, step_size=0)


def test_insensitivity_against_a_loop(arguments):
    names = ("logits", "noisy_logits", "inputs", "noisy_inputs", "labels")
    logits, noisy_logits, inputs, noisy_inputs, labels = (arguments[name] for name in names)
    noisy_inputs = noisy_inputs.clone()
    noisy_inputs[0, 0] = inputs[0]  # no change: 0/0
    noisy_inputs[1, 1] = (inputs[1] + 0.3).clamp(0, 1)  # too far
    ratios = []
    for i, label in enumerate(labels):
        loss = -log_softmax(logits[i].numpy())[label]
        for j in range(2):
            change = float((noisy_inputs[i, j] - inputs[i]).abs().max())
            if 0 < change <= 0.05:
                ratios.append(abs(loss + log_softmax(noisy_logits[i, j].numpy())[label]) / change)
    assert len(ratios) == 2 * len(labels) - 2
    value = noise_insensitivity(logits, noisy_logits, inputs, noisy_inputs, labels, 0.05)
    assert value == pytest.approx(np.mean(ratios))
    assert noise_insensitivity(logits, noisy_logits, inputs, inputs[:, None].expand_as(noisy_inputs), labels, 1).isnan()


def test_the_noisy_versions_that_do_not_count_are_counted():
    inputs = torch.full((2, 1, 1, 1), 0.5, dtype=torch.float64)
    noisy = inputs[:, None] + torch.tensor([0, 0.1, 0.3], dtype=torch.float64).view(1, 3, 1, 1, 1)
    logits = torch.zeros(2, 2, dtype=torch.float64)
    noisy_logits = torch.zeros(2, 3, 2, dtype=torch.float64)
    noisy_logits[1, 1, 0] = 1  # the loss of class 0 falls from ln 2 to ln(1 + 1 / e)
    arguments = (logits, noisy_logits, inputs, noisy, torch.tensor([0, 0]), 0.2)
    fall = (math.log(2) - math.log1p(math.exp(-1))) / 0.1
    nan = math.nan
    assert noise_ratios(*arguments).tolist() == pytest.approx([nan, 0, nan, nan, fall, nan], nan_ok=True)
    assert summarise(noise_ratios(*arguments)) == pytest.approx((fall / 2, 2, 4))
    assert noise_insensitivity(*arguments) == pytest.approx(fall / 2)


def test_noise_of_exactly_epsilon_counts():
    inputs = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 0.9
    noisy = inputs[:, None] + 8 / 255
    logits = torch.zeros(1, 2)
    value = noise_insensitivity(logits, logits[:, None], inputs, noisy, torch.tensor([0]), 8 / 255)
    assert value == 0
    with pytest.raises(ValueError, match="expected epsilon > 0, got 0"):
        noise_insensitivity(logits, logits[:, None], inputs, noisy, torch.tensor([0]), 0)


def test_sensitivity_by_hand(arguments):
    maps, adv_maps = arguments["activations"], arguments["adv_activations"]
    by_channel = [
        np.mean([np.abs((x - y).numpy()).sum() / 9 for x, y in zip(maps[:, c], adv_maps[:, c], strict=True)])
        for c in range(6)
    ]
    assert neuron_sensitivity(maps, adv_maps) == pytest.approx(np.mean(by_channel))
    assert neuron_sensitivity(maps[:, 2:3], adv_maps[:, 2:3]) == pytest.approx(by_channel[2])
    units = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    assert neuron_sensitivity(units, units + torch.tensor([1.0, -3.0])) == 2
    assert neuron_sensitivity(maps, maps) == 0


def test_uncertainty_over_positions_or_images(arguments):
    maps = arguments["activations"]
    expected = np.mean([[np.var(channel.numpy()) for channel in image] for image in maps])
    assert neuron_uncertainty(maps) == pytest.approx(expected)
    over_images = np.var(maps.numpy().mean((2, 3)), axis=0).mean()
    assert neuron_uncertainty(maps, over="images") == pytest.approx(over_images)
    units = torch.tensor([[1.0], [3.0]])
    assert neuron_uncertainty(units) == 0
    assert neuron_uncertainty(units, over="images") == 1


def test_an_answer_that_is_not_finite_is_never_right(boundary):
    """All of class 0, which is what argmax makes of NaN: beyond the grid's first step the model has no answer."""
    _, inputs, _, _, _ = boundary
    first = inputs.flatten(1)[:, 0]

    def model(images):
        here = (images.flatten(1)[:, :1] - first.repeat_interleave(len(images) // len(first))[:, None]).abs() < 1e-9
        return torch.tensor([[1.0, 0.0]], dtype=torch.float64).where(here, torch.nan)

    labels, direction = torch.zeros(6, dtype=torch.long), torch.ones(1, 3, 2, 2, dtype=torch.float64)
    grid = torch.tensor([1.0, 2.0])
    assert empirical_boundary_distance(model, inputs, labels, direction, grid, reduction="none").tolist() == [1.0] * 6
