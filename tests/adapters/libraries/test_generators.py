"""AdvGAN and TREMBA: their formulas by hand, what they learn, what that costs and who is asked."""

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.libraries.davylamp import tremba as tremba_module
from davylamp.adapters.libraries.davylamp.advgan import apply_advgan, make_generator, train_advgan
from davylamp.adapters.libraries.davylamp.generators import load_weights, weights_of
from davylamp.adapters.libraries.davylamp.tremba import _Rates, make_networks, tremba
from davylamp.adapters.running.fit import fit_attack
from davylamp.errors import InvalidInput

RADIUS = 0.2
BALL = ThreatModel("linf", RADIUS)


@pytest.fixture(scope="module")
def others():
    """Digits 0 to 95, as the fixture `digits` has others: to learn from."""
    data = load_digits()
    images = torch.tensor(data.images[:96] / 16, dtype=torch.float32)[:, None].expand(-1, 3, -1, -1) * 0.9 + 0.05
    return nn.functional.interpolate(images, scale_factor=2), torch.tensor(data.target[:96])


@pytest.fixture(scope="module")
def generator(digits, others):
    return fit_attack("davylamp:advgan", digits.classifier, *others, BALL, epochs=12, confidence=2.0)


def test_advgan_adds_epsilon_times_the_tangent_of_its_generator():
    network = make_generator(3).eval()
    nn.init.zeros_(network[-1].weight)
    nn.init.constant_(network[-1].bias, 0.5)
    inputs = torch.full((2, 3, 10, 13), 0.5)  # of any size
    moved = apply_advgan(weights_of(generator=network), inputs, BALL)
    assert torch.allclose(moved, inputs + RADIUS * torch.tensor(0.5).tanh())
    dark = apply_advgan(weights_of(generator=network), torch.full((1, 3, 8, 8), 0.99), BALL)
    assert dark.max() == 1


def test_advgan_fools_images_that_it_has_not_seen_and_asks_nothing_about_them(digits, generator, others):
    result = run_attack("davylamp:advgan", digits.classifier, digits.inputs, digits.labels, BALL, fitted=generator)
    assert not result.forwards.any()
    assert not result.backwards.any()
    signs = torch.sign(torch.randn(digits.inputs.shape, generator=torch.Generator().manual_seed(0)))
    noisy = digits.module((digits.inputs + RADIUS * signs).clamp(0, 1)).argmax(1) != digits.labels
    assert result.success.sum() >= noisy.sum() + 4
    assert result.distances.linf.max() <= RADIUS + 1e-6
    changes = result.adv_inputs - digits.inputs
    assert (changes[0] - changes[1]).abs().max() > 0.1 * RADIUS  # each image gets a perturbation of its own
    right = int((digits.module(others[0]).argmax(1) == others[1]).sum())
    assert generator.images == right
    assert generator.forwards == generator.backwards == 12 * right


def test_advgan_is_seeded_and_learns_what_its_function_learns(digits, others):
    few = others[0][:20], others[1][:20]
    fits = [fit_attack("davylamp:advgan", digits.classifier, *few, BALL, epochs=2, seed=seed) for seed in (3, 3, 4)]
    assert fits[0].digest == fits[1].digest != fits[2].digest
    with torch.random.fork_rng():
        torch.manual_seed(0)
        learned = train_advgan(digits.module, *few, epsilon=RADIUS, epochs=1)
    assert set(learned) == set(fits[0].arrays)


def test_weights_of_other_networks_are_refused():
    weights = weights_of(generator=make_generator(3))
    with pytest.raises(ValueError, match="of a generator for images of this shape"):
        load_weights(weights, generator=make_generator(1))


def test_a_step_of_tremba_is_the_formula(monkeypatch):
    class Zero(nn.Module):
        def forward(self, inputs):
            return torch.zeros_like(inputs)

    monkeypatch.setattr(tremba_module, "make_networks", lambda _: (Zero(), nn.Identity()))
    inputs = torch.full((2, 3, 4, 4), 0.5)
    weights = torch.randn(48, 3, generator=torch.Generator().manual_seed(1))
    labels = torch.zeros(2, dtype=torch.long)

    def model(points):
        return points.flatten(1) @ weights + torch.tensor([9.0, 0.0, 0.0])

    torch.manual_seed(5)
    moved = tremba(model, inputs, labels, epsilon=0.1, steps=1, samples=4, learning_rate=2.0)
    torch.manual_seed(5)
    noise = torch.randn(2, 2, 3, 4, 4)
    noise = torch.cat([noise, -noise])
    logits = torch.stack([model((inputs + 0.1 * each.tanh()).clamp(0, 1)) for each in noise])
    losses = (logits[..., 0] - logits[..., 1:].amax(-1)).clamp(min=-5)
    point = -2.0 * (losses[..., None, None, None] * noise).mean(0)
    assert torch.allclose(moved, inputs + 0.1 * point.tanh(), atol=1e-6)


def test_the_learning_rate_falls_as_in_the_authors_loop():
    losses = torch.randn(3, 90, generator=torch.Generator().manual_seed(2)).cumsum(1).abs() * 0.2
    rates = _Rates(3, 5.0, losses)
    for step in range(90):
        rates.note(torch.arange(3), losses[:, step])
    for image in range(3):
        rate, last = 5.0, []
        for loss in losses[image].tolist():
            last = [*last, loss][-20:]
            rising = last[-1] > last[0] + 0.3 or (last[-1] > last[0] and last[-1] < 0.6)
            if rising and len(last) == 20:
                rate, last = max(rate / 2, 0.1), []
        assert rates.of(torch.tensor([image])).item() == pytest.approx(rate)
    assert rates.rates.min() < 5


def test_tremba_counts_every_pass_and_stops_where_an_image_is_fooled(digits):
    given = {"steps": 3, "samples": 6}
    result = run_attack("davylamp:tremba", digits.classifier, digits.inputs, digits.labels, BALL, **given)
    assert set(result.forwards[result.robust].tolist()) == {3 * 7 + 1}
    assert set(result.forwards[result.success].tolist()) <= {1, 8, 15, 22}
    assert not result.backwards.any()
    capped = run_attack(
        "davylamp:tremba", digits.classifier, digits.inputs, digits.labels, BALL, max_queries=10, **given
    )
    assert capped.forwards.max() <= 10
    odd = run_attack("davylamp:tremba", digits.classifier, digits.inputs, digits.labels, BALL, steps=1, samples=3)
    assert set(odd.forwards[odd.robust].tolist()) == {1 + 4 + 1}


def test_what_tremba_learned_on_another_model_saves_queries_on_this_one(digits, others):
    """The other model sees the image moved by a pixel: its gradients are not this one's."""

    class Moved(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = digits.module

        def forward(self, inputs):
            return self.module(inputs.roll(1, -1))

    fitted = fit_attack("davylamp:tremba", Classifier(Moved(), name="moved"), *others, BALL, epochs=10)
    assert fitted.forwards == fitted.backwards == 10 * fitted.images
    given = {"steps": 10, "samples": 10}
    case = digits.classifier, digits.inputs, digits.labels, BALL
    plain = run_attack("davylamp:tremba", *case, **given)
    learned = run_attack("davylamp:tremba", *case, fitted=fitted, **given)
    assert learned.success.sum() > plain.success.sum()
    assert learned.forwards.sum() < plain.forwards.sum()
    assert learned.forwards.min() >= 1
    with pytest.raises(InvalidInput, match="comes from davylamp:tremba under"):
        run_attack("davylamp:tremba", *case[:3], ThreatModel("linf", 0.1), fitted=fitted)


@pytest.mark.parametrize(("side", "shape"), [(8, (8, 2, 2)), (28, (8, 7, 7)), (32, (8, 8, 8)), (224, (3, 14, 14))])
def test_the_embedding_has_the_size_of_the_papers(side, shape):
    inputs = torch.zeros(1, 3, side, side)
    encoder, decoder = (network.eval() for network in make_networks(inputs))
    assert encoder(inputs).shape[1:] == shape
    assert decoder(encoder(inputs)).shape == inputs.shape
