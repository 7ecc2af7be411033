"""Each method's loss against what it is on a linear model, where the worst image of a ball is a formula."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from davylamp.adapters import Classifier
from davylamp.engine.training.inner_maximisation import gradient_step, initial_perturbation, step_change
from davylamp.engine.training.methods import METHODS, make_settings
from davylamp.engine.training.student import TrainableModel

EPSILON = 0.05
DIRECTION = torch.tensor([1.0, -2.0, 0.5, 3.0])  # of the logit of class 0; class 1 is always 0


@pytest.fixture
def case():
    """Two classes, logit 0 is direction times image minus 0.7; images far enough from 0 and 1 for any ball."""
    layer = nn.Linear(4, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.stack([DIRECTION, torch.zeros(4)]))
        layer.bias.copy_(torch.tensor([-0.7, 0.0]))
    student = TrainableModel(Classifier(nn.Sequential(nn.Flatten(), layer)))
    inputs = torch.rand(6, 1, 2, 2, generator=torch.Generator().manual_seed(1)) * 0.6 + 0.2
    labels = torch.tensor([0, 1, 0, 1, 1, 0])
    logits = inputs.flatten(1) @ DIRECTION - 0.7
    margins = torch.where(labels == 0, logits, -logits)  # of the true class over the other
    return student, inputs, labels, margins


def first_loss(case, method, norm="linf", epsilon=EPSILON, **given):
    student, inputs, labels, _ = case
    settings = make_settings(method, norm, epsilon, given)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return next(METHODS[method].loss(student, inputs, labels, settings, {})).detach()


REACH = {"linf": EPSILON * DIRECTION.abs().sum(), "l2": EPSILON * DIRECTION.norm()}


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize(("method", "given"), [("pgd", {"steps": 20}), ("pgd", {"steps": 20, "start": "none"})])
def test_pgd_reaches_the_worst_image_of_the_ball(case, norm, method, given):
    worst = functional.softplus(-(case[3] - REACH[norm])).mean()
    assert float(first_loss(case, method, norm, **given)) == pytest.approx(float(worst), rel=2e-3)


@pytest.mark.parametrize(("outputs", "end"), [("logit", nn.Identity()), ("probability", nn.Sigmoid())])
def test_one_number_of_two_classes_is_trained_on_as_two_logits(case, outputs, end):
    """The loss at the worst image is softplus of minus the margin, whether the model returns z, sigmoid(z) or both."""
    layer = nn.Linear(4, 1)
    with torch.no_grad():
        layer.weight.copy_(-DIRECTION[None])  # of class 1
        layer.bias.fill_(0.7)
    student = TrainableModel(Classifier(nn.Sequential(nn.Flatten(), layer, end), outputs=outputs))
    worst = functional.softplus(-(case[3] - REACH["linf"])).mean()
    assert float(first_loss((student, *case[1:]), "pgd", steps=20)) == pytest.approx(float(worst), rel=2e-3)


def test_one_step_of_fast_training_ends_on_the_sphere_of_a_linear_model(case):
    """A step of 1.25 epsilon from a random point of the ball: between the worst and a quarter of the way there."""
    loss = float(first_loss(case, "fbf"))
    worst = float(functional.softplus(-(case[3] - REACH["linf"])).mean())
    quarter = float(functional.softplus(-(case[3] - 0.25 * REACH["linf"])).mean())
    assert quarter < loss <= worst + 1e-6


def test_one_step_training_weighs_clean_and_worst_images(case):
    clean, worst = (functional.softplus(-(case[3] - reach)).mean() for reach in (0.0, REACH["linf"]))
    assert float(first_loss(case, "fgsm", clean_share=0.25)) == pytest.approx(float(0.25 * clean + 0.75 * worst))


def test_the_step_to_the_least_likely_class_has_a_radius_up_to_epsilon(case):
    """Of two classes it is the less likely one: images that are right become worse, the wrong ones better."""
    student, inputs, labels, margins = case
    settings = make_settings("least-likely", "linf", EPSILON, {"clean_share": 0.0})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        radii = nn.init.trunc_normal_(torch.empty(6, 1, 1, 1), 0, EPSILON / 2, 0, EPSILON).flatten()
        torch.manual_seed(0)
        loss = next(METHODS["least-likely"].loss(student, inputs, labels, settings, {}))
    moved = margins - margins.sign() * radii * DIRECTION.abs().sum()
    assert float(loss.detach()) == pytest.approx(float(functional.softplus(-moved).mean()), rel=1e-5)
    assert radii.min() > 0
    assert radii.max() <= EPSILON


def test_logit_pairing_adds_the_squared_difference_of_the_logits_at_the_worst_image(case):
    """Logit 0 moves by the reach, logit 1 is always 0: a mean square of half of the reach squared."""
    clean, worst = (functional.softplus(-(case[3] - reach)).mean() for reach in (0.0, REACH["linf"]))
    pair = REACH["linf"] ** 2 / 2
    given = {"steps": 20, "start": "none"}
    loss = float(first_loss(case, "logit-pairing", **given, beta=3.0, clean_share=0.25))
    assert loss == pytest.approx(float(0.25 * clean + 0.75 * worst + 3 * pair), rel=1e-4)
    assert float(first_loss(case, "logit-pairing", **given)) == pytest.approx(
        float((clean + worst + pair) / 2), rel=1e-4
    )
    mixed = float(first_loss(case, "pgd", **given, clean_share=0.5))
    assert float(first_loss(case, "logit-pairing", **given, beta=0.0)) == pytest.approx(mixed, rel=1e-6)


def test_trades_is_the_clean_loss_and_the_divergence_at_the_end_of_the_ball(case):
    margins = case[3]
    clean = functional.softplus(-margins).mean()
    probability = margins.sigmoid()

    def divergence(margin):
        other = margin.sigmoid()
        return probability * (probability / other).log() + (1 - probability) * ((1 - probability) / (1 - other)).log()

    gaps = torch.stack([divergence(margins + side * REACH["linf"]) for side in (-1, 1)])
    loss = float(first_loss(case, "trades", steps=20, beta=2.0))
    # The ascent from a random point goes to either end of the ball.
    low, high = (float(clean + 2 * gaps.amin(0).mean()), float(clean + 2 * gaps.amax(0).mean()))
    assert low - 1e-5 <= loss <= high + 1e-5
    assert loss > float(clean) + 1.9 * float(gaps.amin(0).mean())
    assert float(first_loss(case, "trades", steps=20, beta=0.0)) == pytest.approx(float(clean))


def test_mart_is_its_formula_at_the_worst_image(case):
    margins = case[3]
    worst = margins - REACH["linf"]
    p, q = margins.sigmoid(), worst.sigmoid()
    boosted = -q.log() - (1.0001 - (1 - q)).log()
    gaps = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
    expected = (boosted + 3 * gaps * (1 - p)).mean()
    assert float(first_loss(case, "mart", steps=20, beta=3.0)) == pytest.approx(float(expected), rel=1e-3)


def test_weights_are_moved_along_their_gradient_by_a_share_of_their_length(case):
    student, inputs, labels, _ = case
    worst = inputs.flatten(1) - EPSILON * torch.where(labels == 0, 1, -1)[:, None] * DIRECTION.sign()
    plain = functional.cross_entropy(student(worst.reshape(inputs.shape)), labels)
    loss = first_loss(case, "awp", steps=20, start="none", gamma=0.1)
    (gradient,) = torch.autograd.grad(plain, student.model[1].weight)
    weight = student.model[1].weight.detach()
    moved = weight + 0.1 * weight.norm() * gradient / gradient.norm()
    expected = functional.cross_entropy(worst @ moved.T + student.model[1].bias, labels).detach()
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-3)
    assert loss.detach() > plain.detach()
    assert torch.equal(student.model[1].weight.detach(), weight)


def test_free_training_moves_the_change_and_the_weights_by_one_backward_pass(case):
    student, inputs, labels, margins = case
    settings = make_settings("free", "linf", EPSILON, {"replays": 3, "step_size": EPSILON})
    memory, losses = {}, []
    for loss in METHODS["free"].loss(student, inputs, labels, settings, memory):
        loss.backward()  # the weights stay: the change alone moves
        losses.append(float(loss.detach()))
    worst = float(functional.softplus(-(margins - REACH["linf"])).mean())
    assert losses == pytest.approx([float(functional.softplus(-margins).mean()), worst, worst], rel=1e-5)
    sides = torch.where(labels == 0, -1, 1)[:, None] * DIRECTION.sign() * EPSILON
    assert torch.allclose(memory["change"].flatten(1), sides)


def test_the_change_of_free_training_outlasts_the_batch(case):
    student, inputs, labels, _ = case
    settings = make_settings("free", "linf", EPSILON, {"replays": 1})
    memory = {"change": torch.full_like(inputs, 0.02)}
    loss = next(METHODS["free"].loss(student, inputs[:2], labels[:2], settings, memory))
    expected = functional.cross_entropy(student(inputs[:2] + 0.02), labels[:2]).detach()
    assert float(loss.detach()) == pytest.approx(float(expected))


def test_a_distilled_student_fits_its_teacher_at_the_temperature(case):
    student, inputs, labels, margins = case
    settings = make_settings("distillation", "linf", EPSILON, {"temperature": 4.0})
    teacher = {name: 2 * tensor for name, tensor in student.state_dict().items()}
    first = next(METHODS["distillation"].loss(student, inputs, labels, settings, {}))
    assert float(first.detach()) == pytest.approx(float(4 * functional.softplus(-margins / 4).mean()), rel=1e-5)
    second = next(METHODS["distillation"].loss(student, inputs, labels, settings, {"teacher": teacher}))
    soft, answer = (2 * margins / 4).sigmoid(), margins / 4
    expected = 4 * (soft * functional.softplus(-answer) + (1 - soft) * functional.softplus(answer)).mean()
    assert float(second.detach()) == pytest.approx(float(expected), rel=1e-5)


def test_noise_has_the_deviation_that_was_asked_for(case):
    student, inputs, labels, _ = case
    many = inputs[:1].expand(4000, -1, -1, -1) * 0 + 0.5
    seen = []
    student.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    settings = make_settings("natural-noise", "linf", EPSILON, {"std": 0.03, "clean_share": 0.0})
    next(METHODS["natural-noise"].loss(student, many, labels[:1].expand(4000), settings, {}))
    assert float((seen[0] - many).std()) == pytest.approx(0.03, rel=0.05)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_every_point_of_an_ascent_lies_in_the_ball(norm):
    generator = torch.Generator().manual_seed(0)
    inputs, gradient = torch.rand(50, 3, 4, 4, generator=generator), torch.randn(50, 3, 4, 4, generator=generator)
    order = math.inf if norm == "linf" else 2
    first = initial_perturbation(inputs, norm, 0.3, "uniform")
    for point in (first, gradient_step(first, gradient, inputs, norm, 0.3, 1.0)):
        assert (point - inputs).flatten(1).norm(order, dim=1).max() <= 0.3 + 1e-6
        assert point.min() >= 0
        assert point.max() <= 1
    change = step_change(torch.zeros_like(inputs), gradient, norm, 0.3, 1.0)
    assert torch.allclose(change.flatten(1).norm(order, dim=1), torch.tensor(0.3))


def test_free_training_moves_black_pixels(case):
    """torch's clamp has no gradient at its bounds since 2.15: a black pixel would stay as it is for ever."""
    student, inputs, labels, _ = case
    black = torch.zeros_like(inputs)
    settings = make_settings("free", "linf", EPSILON, {"replays": 1, "step_size": EPSILON})
    memory = {}
    for loss in METHODS["free"].loss(student, black, labels, settings, memory):
        loss.backward()
    assert bool((memory["change"][: len(inputs)] != 0).any())
