"""Queries are counted for the right image, whatever a library does to the batch, and never exceed a budget."""

import pytest
import torch
from torch import nn

from davylamp.adapters import run_attack
from davylamp.adapters.models.classifier import Classifier
from davylamp.adapters.running.budget import QueryBudgetExhausted
from davylamp.adapters.running.judge import perturbation_norm
from davylamp.adapters.running.queries import QueryCounter, nearest, separable_groups
from davylamp.adapters.threat_model import ThreatModel


@pytest.fixture
def counter(digits):
    def make(images=4, order="kept", budget=None, threat_model=None):
        case = digits.first(images)
        allowance = None if budget is None else torch.full((images,), budget)
        threat_model = threat_model or ThreatModel("linf", 0.05)
        return QueryCounter(
            case.classifier, case.inputs, case.labels, threat_model, order=order, max_queries=allowance
        ), case

    return make


def test_every_backward_pass_counts_and_a_forward_without_gradient_has_none(counter):
    model, case = counter()
    inputs = case.inputs.clone().requires_grad_()
    logits = model(inputs)
    for k in range(3):
        torch.autograd.grad(logits[:, k].sum(), inputs, retain_graph=True)
    with torch.no_grad():
        model(inputs)
    assert model.backwards.tolist() == [3] * 4
    assert model.forwards.tolist() == [2] * 4


def test_stacked_copies_belong_to_their_images(counter):
    model, case = counter()
    model(case.inputs.repeat(3, 1, 1, 1))
    assert model.forwards.tolist() == [3] * 4


@pytest.mark.parametrize("budget", [None, 1000])
def test_many_images_without_gradients_are_asked_about_in_parts(counter, budget):
    model, case = counter(budget=budget)
    sizes, inputs = [], case.inputs.repeat(37, 1, 1, 1)
    hook = case.module.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    expected = case.classifier(inputs)
    assert sizes == [148]  # the classifier itself asks once: whoever hooks a layer sees all images at once
    sizes.clear()
    assert torch.allclose(model(inputs), expected, atol=1e-5)
    with torch.no_grad():
        model(inputs.clone().requires_grad_())
    assert sizes == [64, 64, 20] * 2
    sizes.clear()
    model(inputs.requires_grad_()).sum().backward()
    assert sizes == [148]
    assert model.forwards.tolist() == [3 * 37] * 4
    hook.remove()  # the module is shared by the whole session
    assert model.backwards.tolist() == [37] * 4


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_shuffled_repeated_and_shrunk_batches_are_attributed_by_content(counter, noise):
    model, case = counter(order="content")
    generator = torch.Generator().manual_seed(3)
    rows = torch.tensor([2, 0, 2, 3, 2, 3])
    sign = torch.rand(rows.shape + case.inputs.shape[1:], generator=generator).round() * 2 - 1
    batch = (case.inputs[rows] + noise * sign).requires_grad_()
    model(batch)[[0, 1]].sum().backward()
    assert model.forwards.tolist() == [1, 0, 3, 2]
    # a backward pass goes through all rows of the call
    assert model.backwards.tolist() == [1, 0, 3, 2]


def test_kept_order_falls_back_to_content_when_the_batch_shrinks(counter):
    model, case = counter()
    model(case.inputs[[3]])
    model(case.inputs[[3, 1, 0]])
    assert model.forwards.tolist() == [1, 1, 0, 2]


def test_past_the_budget_an_image_learns_nothing_more(counter):
    model, case = counter(order="content", budget=2)
    first = model(case.inputs[[0]])
    model(case.inputs[[0]])
    other = torch.rand_like(case.inputs[[0]]) * 0.02 + case.inputs[[0]]
    asked = torch.cat([other, case.inputs[[1]]]).requires_grad_()
    logits = model(asked)
    logits.sum().backward()
    assert torch.equal(logits[0], first[0])
    assert not asked.grad[0].any()
    assert asked.grad[1].any()
    assert model.forwards.tolist() == [2, 1, 0, 0]
    assert model.backwards.tolist() == [0, 1, 0, 0]
    assert model.budget.denied.tolist() == [True, False, False, False]


def test_a_gradient_past_the_budget_is_zero(counter):
    model, case = counter(budget=1)
    inputs = case.inputs.clone().requires_grad_()
    model(inputs).sum().backward()
    assert not inputs.grad.any()
    assert model.backwards.tolist() == [0] * 4


def test_the_attack_ends_when_no_image_may_ask(counter):
    model, case = counter(budget=3)
    for _ in range(3):
        model(case.inputs)
    with pytest.raises(QueryBudgetExhausted):
        model(case.inputs)
    assert model.forwards.tolist() == [3] * 4


def test_copies_of_one_image_share_its_budget(counter):
    model, case = counter(order="content", budget=2)
    model(case.inputs[[0, 0, 0, 1]])
    assert model.forwards.tolist() == [2, 1, 0, 0]


def test_the_best_example_within_a_budget_is_inside_the_ball_and_fools(counter):
    model, case = counter(images=2, order="content", budget=50, threat_model=ThreatModel("linf", 0.8))
    fooling, generator = {}, torch.Generator().manual_seed(0)
    model(case.inputs)
    for _ in range(40):
        noise = 1.6 * torch.rand(case.inputs.shape, generator=generator) - 0.8
        batch = (case.inputs + noise).clamp(0, 1)
        logits = model(batch)
        for i in (logits.argmax(1) != case.labels).nonzero()[:, 0].tolist():
            fooling.setdefault(i, batch[i])
    assert set(fooling) == {0, 1}
    model(1 - case.inputs)  # outside of the ball
    assert torch.equal(model.budget.best, torch.stack([fooling[0], fooling[1]]))
    assert (perturbation_norm(model.budget.best - case.inputs, "linf") <= 0.8 + 1e-6).all()


def test_the_best_example_within_a_budget_that_fools_nothing_has_the_smallest_margin(counter):
    model, case = counter(images=2, order="content", budget=50, threat_model=ThreatModel("linf", 0.02))
    asked, margins, generator = [], [], torch.Generator().manual_seed(0)
    for _ in range(20):
        noise = 0.04 * torch.rand(case.inputs.shape, generator=generator) - 0.02
        asked.append((case.inputs + noise).clamp(0, 1))
        logits = model(asked[-1])
        rest = logits.scatter(1, case.labels[:, None], -torch.inf).amax(1)
        margins.append(logits.gather(1, case.labels[:, None])[:, 0] - rest)
    assert min(each.min().item() for each in margins) > 0
    lowest = torch.stack(margins).argmin(0)
    assert len(set(lowest.tolist())) == 2
    assert torch.equal(model.budget.best, torch.stack([asked[lowest[i]][i] for i in range(2)]))


def test_a_point_asked_about_outside_of_the_ball_stands_inside_until_a_sound_one_fools():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2, bias=False))
    with torch.no_grad():
        net[1].weight.copy_(torch.tensor([[0.0] * 4, [1.0] * 4]))  # class 1 if the values sum up to more than 0
        net.append(torch.nn.Linear(2, 2))
        net[2].weight.copy_(torch.eye(2))
        net[2].bias.copy_(torch.tensor([0.0, -2.5]))
    inputs, labels = torch.full((1, 1, 2, 2), 0.5), torch.tensor([0])
    limit = torch.tensor([10])
    model = QueryCounter(Classifier(net), inputs, labels, ThreatModel("linf", 0.2), max_queries=limit)
    model(inputs)
    assert torch.equal(model.best_examples(), inputs)
    model(inputs + torch.tensor([0.3, 0.6, 0.1, 0.3]).view(1, 1, 2, 2))
    expected = inputs + torch.tensor([0.2, 0.2, 0.1, 0.2]).view(1, 1, 2, 2)
    torch.testing.assert_close(model.best_examples(), expected)
    model(inputs * torch.nan)
    model(inputs + 0.1)  # sound, but it fools less than the point outside did
    torch.testing.assert_close(model.best_examples(), expected)
    model(inputs + 0.15)
    torch.testing.assert_close(model.best_examples(), inputs + 0.15)
    model(inputs + 0.5)
    torch.testing.assert_close(model.best_examples(), inputs + 0.15)


@pytest.mark.parametrize(("attack", "budget"), [("ni-fgsm", 60), ("vmi-fgsm", 400), ("si-ni-fgsm", 400)])
def test_an_attack_that_looks_ahead_is_not_robbed_of_what_it_found(digits, attack, budget):
    case = digits.first(8)
    settings = {"steps": 50, "step_size": 0.02}
    arguments = f"torchattacks:{attack}", case.classifier, case.inputs, case.labels, ThreatModel("linf", 0.2)
    result = run_attack(*arguments, **settings, max_queries=budget)
    assert (result.forwards + result.backwards).tolist() == [budget] * 8
    assert result.success.float().mean() > 0.5


def test_without_radius_the_nearest_fooling_example_stands(counter):
    model, case = counter(images=1, budget=500, threat_model=ThreatModel("l2"))
    generator = torch.Generator().manual_seed(0)
    nearest_fooling = None
    for _ in range(60):
        scale = float(torch.rand(1, generator=generator))
        asked = (case.inputs + 2 * scale * (torch.rand(case.inputs.shape, generator=generator) - 0.5)).clamp(0, 1)
        if model(asked).argmax(1) != case.labels:
            size = perturbation_norm(asked - case.inputs, "l2").item()
            if nearest_fooling is None or size < nearest_fooling[0]:
                nearest_fooling = size, asked
    assert nearest_fooling is not None
    assert torch.equal(model.budget.best, nearest_fooling[1])


def test_nearest_is_the_brute_force_answer():
    generator = torch.Generator().manual_seed(0)
    images, rows = torch.rand(7, 3, 5, 5, generator=generator), torch.rand(20, 3, 5, 5, generator=generator)
    brute = (rows[:, None] - images[None]).flatten(2).square().sum(2).argmin(1)
    assert torch.equal(nearest(rows, images), brute)


def test_distinguishable_is_safe_at_its_limit():
    a, b = torch.zeros(1, 1, 4, 4), torch.full((1, 1, 4, 4), 0.5)
    images = torch.cat([a, b])
    # the worst point of a's ball lies on the segment to b: nearer to a only if epsilon < half the difference
    assert separable_groups(images, ThreatModel("linf", 0.2499)) == [[0, 1]]
    assert separable_groups(images, ThreatModel("linf", 0.2501)) == [[0], [1]]
    assert separable_groups(torch.cat([a, a]), ThreatModel("linf", 0.001)) == [[0], [1]]
    assert separable_groups(torch.cat([a, a, b, b]), ThreatModel("linf", 0.2499)) == [[0, 2], [1, 3]]
    assert separable_groups(images, ThreatModel("l2")) == [[0], [1]]
    assert separable_groups(a, ThreatModel("l2")) == [[0]]


def test_nothing_switches_the_model_to_training(counter):
    model, _ = counter()
    model.train()
    assert not any(module.training for module in model.modules())


def test_a_library_that_works_on_some_of_the_images_is_counted_for_those(counter):
    model, case = counter()
    rows = torch.tensor([3, 1])
    model.restrict(rows)
    inputs = case.inputs[rows].clone().requires_grad_()
    model(inputs).sum().backward()
    model(case.inputs[rows].repeat(2, 1, 1, 1))
    assert model.forwards.tolist() == [0, 3, 0, 3]
    assert model.backwards.tolist() == [0, 1, 0, 1]


def test_an_attack_that_only_asks_about_spent_images_ends_and_keeps_what_the_others_found(counter):
    model, case = counter(images=2, order="content", budget=5, threat_model=ThreatModel("linf", 0.9))
    example = 1 - case.inputs[[0]]
    assert model.query(example, torch.tensor([0])).argmax(1) != case.labels[0]

    def ask_forever():
        for _ in range(1000):
            model(case.inputs[[1]])

    with pytest.raises(QueryBudgetExhausted):
        ask_forever()
    assert model.forwards.tolist() == [1, 5]
    assert torch.equal(model.best_examples()[0], example[0])


def test_a_resized_copy_counts_but_is_no_example():
    net = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 3))
    inputs, labels = torch.rand(2, 3, 8, 8), torch.zeros(2, dtype=torch.long)
    counter = QueryCounter(Classifier(net), inputs, labels, ThreatModel("linf", 0.1), max_queries=torch.full((2,), 5))
    counter(torch.rand(2, 3, 10, 10))
    assert counter.forwards.tolist() == [1, 1]
    assert torch.equal(counter.best_examples(), inputs)
