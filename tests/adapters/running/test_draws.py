"""Models that draw random numbers on purpose: judged by repeated draws, attacked through the mean of several."""

import re

import numpy as np
import pytest
import torch
from torch import nn

import davylamp
from davylamp.adapters import Classifier, QueryCounter, ThreatModel, run_attack
from davylamp.adapters.data.datasets import Data
from davylamp.adapters.running.judge import quantise
from davylamp.adapters.running.sampling import clean_draws, judge_outputs
from davylamp.adapters.running.surrogate import run_transfer
from davylamp.engine import ResultsStore, build_table, load, make_plan
from davylamp.engine import evaluate as evaluate_plan
from davylamp.engine.searches.single import round_to_8bit
from davylamp.errors import InvalidInput
from davylamp.intervals import proportion_interval


class Coin(nn.Module):
    """Predicts class 1 with a chance that is the mean of the image, class 0 otherwise."""

    def forward(self, inputs):
        chance = inputs.mean((1, 2, 3))
        heads = (torch.rand(len(inputs)) < chance).float()
        return torch.stack([1 - 2 * heads, 2 * heads - 1], 1) + 0 * inputs.flatten(1)[:, :1]


class Noisy(nn.Module):
    """A linear model with noise on its logits."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 3, bias=False)
        nn.init.normal_(self.layer.weight, generator=torch.Generator().manual_seed(0))

    def forward(self, inputs):
        logits = self.layer(inputs.flatten(1))
        return logits + 0.3 * torch.randn(logits.shape) + logits * torch.randn(len(logits), 1)


@pytest.fixture(scope="module")
def grey():
    return torch.tensor([0.05, 0.3, 0.49, 0.52, 0.8])[:, None, None, None].expand(5, 1, 4, 4).clone()


@pytest.fixture(scope="module")
def images(digits):
    return Data(digits.inputs, digits.labels, [f"digit_{i}" for i in range(len(digits.labels))])


def coin():
    return Classifier(Coin(), num_classes=2, random=True)


def test_the_share_of_the_draws_is_their_chance_and_half_of_them_decides(grey):
    labels, model = torch.zeros(5, dtype=torch.long), coin()
    model.draws = 1000
    drawn = judge_outputs(model, grey, labels, None, seed=3)
    chances = grey.mean((1, 2, 3)).numpy()
    assert np.abs(drawn.share.numpy() - chances).max() < 4 * 0.5 / 1000**0.5
    assert (drawn.logits.argmax(1) != labels).tolist() == (drawn.share >= 0.5).tolist()
    again = judge_outputs(model, grey, labels, None, seed=3)
    assert torch.equal(drawn.share, again.share)
    assert torch.equal(drawn.logits, again.logits)
    assert not torch.equal(drawn.share, judge_outputs(model, grey, labels, None, seed=4).share)
    aimed = judge_outputs(model, grey, labels, torch.ones(5, dtype=torch.long), seed=3)
    assert torch.equal(aimed.share, drawn.share)  # two classes: the other one is the target


@pytest.mark.parametrize("draws", [1, 2, 5, 20])
def test_the_median_draw_is_fooled_if_half_of_the_draws_are(draws):
    model, generator = Classifier(Noisy(), random=True), torch.Generator().manual_seed(1)
    model.draws = draws
    images, labels = torch.rand(200, 3, 2, 2, generator=generator), torch.randint(3, (200,), generator=generator)
    drawn = judge_outputs(model, images, labels, None, seed=0)
    assert (drawn.logits.argmax(1) != labels).tolist() == (drawn.share >= 0.5).tolist()
    assert 0 < (drawn.share >= 0.5).sum() < 200
    targets = (labels + 1) % 3
    aimed = judge_outputs(model, images, labels, targets, seed=0)
    assert (aimed.logits.argmax(1) == targets).tolist() == (aimed.share >= 0.5).tolist()


def test_a_model_that_says_so_is_not_unstable_and_its_rate_is_the_mean_of_the_shares(grey):
    def idle(model, inputs, labels):
        model(inputs)
        return (inputs + 0.1).clamp(0, 1)

    labels, row = torch.zeros(5, dtype=torch.long), davylamp.as_implementation(idle, norms=("linf",))
    result = run_attack(row, coin(), grey, labels, ThreatModel("linf", 0.1), judge_samples=2000)
    assert result.attacked.tolist() == [True, True, bool(result.attacked[2]), False, False]
    assert result.violations == ((),) * 5
    expected = grey.mean((1, 2, 3))[:2].double() + 0.1
    torch.testing.assert_close(result.draws_fooled[:2], expected, atol=0.05, rtol=0)
    count, total = int(result.attacked.sum()), float(result.fooled_rate.sum())
    low, high = proportion_interval(total, count)
    assert f"MR {total / count:.3g}, 95 % interval [{low:.3g}, {high:.3g}]" in repr(result)
    assert result.forwards.tolist() == result.attacked.long().tolist()  # the judge's draws are not the attack's
    assert "draws_fooled" in result.to_frame()
    counts = int(result.attacked.sum()), int(result.success.sum()), int(result.robust.sum())
    rate = float(result.draws_fooled[result.attacked].mean())
    shown = r"MR (\S+), .*mean over (\d+) samples of each of (\d+) .*half of its samples: (\d+) of (\d+) .*fewer: (\d+)"
    numbers = [float(each) for each in re.search(shown, repr(result)).groups()]
    assert numbers == pytest.approx([rate, result.draws, counts[0], counts[1], counts[0], counts[2]], abs=6e-4)
    silent = Classifier(Coin(), num_classes=2)  # the same model, undeclared
    unstable = run_attack(row, silent, grey[:2], labels[:2], ThreatModel("linf", 0.1), logits=3 * torch.eye(2)[[0, 0]])
    assert "unstable" in unstable.violations[1]
    assert unstable.draws_fooled is None


def test_an_attack_sees_the_mean_of_the_draws_and_pays_for_each():
    model, images = Classifier(Noisy(), random=True), torch.rand(4, 3, 2, 2)
    labels = torch.zeros(4, dtype=torch.long)
    model.check(images)
    model.eot = 50
    counter = QueryCounter(model, images, labels, ThreatModel("linf", 0.1))
    torch.manual_seed(7)
    seen = counter(images)
    torch.manual_seed(7)
    expected = torch.stack([model(images) for _ in range(50)]).mean(0)
    torch.testing.assert_close(seen, expected)
    assert counter.forwards.tolist() == [50] * 4
    asked = images.clone().requires_grad_()
    torch.manual_seed(8)
    (gradient,) = torch.autograd.grad(counter(asked)[:, 0].sum(), asked)
    torch.manual_seed(8)
    (expected,) = torch.autograd.grad(sum(model(asked)[:, 0].sum() for _ in range(50)) / 50, asked)
    torch.testing.assert_close(gradient, expected)
    assert counter.backwards.tolist() == [50] * 4


def test_a_budget_is_kept_in_draws():
    model, images = Classifier(Noisy(), random=True), torch.rand(3, 3, 2, 2)
    labels = torch.zeros(3, dtype=torch.long)
    logits = 3 * torch.eye(3)[[0, 0, 0]]
    result = run_attack(
        "foolbox:pgd", model, images, labels, ThreatModel("linf", 0.1), logits=logits, eot=8, max_queries=50, steps=40
    )
    assert (result.forwards + result.backwards).tolist() == [48] * 3  # three answers with their gradients
    assert result.eot == 8
    with pytest.raises(InvalidInput, match="expected eot as a whole number from 1 to 10000, got 0"):
        run_attack("foolbox:pgd", model, images, labels, ThreatModel("linf", 0.1), logits=logits, eot=0)


def test_eot_fools_more_draws(digits):
    """A gradient that is right in the mean and mostly noise in each draw: PGD needs the mean."""

    class Blurred(nn.Module):
        def __init__(self, inside):
            super().__init__()
            self.inside = inside

        def forward(self, inputs):
            other = inputs + 0.4 * torch.randn_like(inputs)
            return self.inside(other)

    defended = Classifier(Blurred(digits.classifier), random=True)
    inputs, labels = digits.inputs[:24], digits.labels[:24]
    share = {}
    for eot in (1, 16):
        options = {"epsilon": 0.15, "steps": 10, "eot": eot}
        result = davylamp.run_attack("foolbox:pgd", defended, inputs, labels, norm="linf", **options)
        share[eot] = float(result.fooled_rate[result.attacked].mean())
        assert int(result.forwards.max()) == 11 * eot
    assert share[16] > share[1] + 0.05


def test_rounding_is_judged_by_the_draws_that_the_example_was_judged_by(digits):
    """A model that rounds its images itself loses no success where they are rounded before."""

    class OnGrid(nn.Module):
        def __init__(self, inside):
            super().__init__()
            self.inside = inside

        def forward(self, inputs):
            return self.inside(((inputs * 255 + 0.5).floor() / 255) + 0.6 * torch.randn_like(inputs))

    model = Classifier(OnGrid(digits.classifier), random=True, gradients=False)
    model.draws = 9
    generator = torch.Generator().manual_seed(0)
    noise = 0.3 * torch.randn(digits.inputs.shape, generator=generator)

    def add_noise(model, inputs, labels):
        return (inputs + noise[: len(inputs)]).clamp(0, 1)

    row = davylamp.as_implementation(
        add_noise, norms=["l2"], knowledge="decision-based", kind="minimum-norm", name="noise"
    )
    result = davylamp.run_attack(row, model, digits.inputs, digits.labels, norm="l2")
    assert 2 <= int(result.success.sum()) < int(result.attacked.sum())  # or this test says little
    assert torch.equal(result.success_8bit, result.success)


def test_a_folder_has_the_shares_and_a_rerun_is_the_same(digits, images, tmp_path):
    model = davylamp.defend(digits.classifier, "noise:sigma=0.3", "noisy")
    choices = (davylamp.AttackChoice("foolbox:pgd", "linf", 0.1, parameters={"steps": 3}),)
    config = davylamp.Config(
        models=("noisy",), attacks=choices, data="digits", eot=2, judge_samples=10, measures=("effect",)
    )
    tables = []
    for name in "ab":
        plan = make_plan(config, models={"noisy": model}, data=images)
        assert [(cell.draws, cell.eot) for cell in plan.cells] == [(10, 2)]
        summary = evaluate_plan(plan, ResultsStore(tmp_path / name))
        assert not summary.failed
        tables.append(load(tmp_path / name).drop(columns=["seconds"]))
    assert tables[0].equals(tables[1])
    frame = tables[0]
    count = int(frame["attacked"].sum())
    assert set(np.round(frame["draws_fooled"] * 10, 6) % 1) == {0.0}
    assert (frame["success"] == (frame["draws_fooled"] >= 0.5))[frame["attacked"]].all()
    estimate = build_table(tmp_path / "a", by="pairs", metrics=["MR", "RA"], bootstrap=10).rows[0].metrics
    total = frame["draws_fooled"][frame["attacked"]].sum()
    assert estimate["MR"].value == pytest.approx(total / count)
    assert estimate["RA"].value == pytest.approx((count - total) / len(frame))
    clean = clean_draws(model, images.inputs, images.labels)
    accuracy = build_table(tmp_path / "a", by="models", metrics=["CA"], bootstrap=10).rows[0].metrics["CA"].value
    assert accuracy == pytest.approx(1 - float(clean.share.mean()))


def test_cells_of_other_models_keep_their_keys(digits, images):
    choices = (davylamp.AttackChoice("foolbox:pgd", "linf", 0.1),)
    plans = [
        make_plan(
            davylamp.Config(models=("plain",), attacks=choices, data="digits", **settings),
            models={"plain": digits.classifier},
            data=images,
        )
        for settings in ({}, {"eot": 9, "judge_samples": 3})
    ]
    assert plans[0].cells[0].key == plans[1].cells[0].key
    assert not {"draws", "eot"} & set(plans[1].cells[0].spec)


class Lapsing(nn.Module):
    """Class 0, but in a share of its answers NaN, which argmax takes for class 0 as well."""

    def __init__(self, share, clean=False):
        super().__init__()
        self.share, self.clean = share, clean

    def forward(self, inputs):
        lost = (torch.rand(len(inputs)) < self.share) & (self.clean | (inputs.mean((1, 2, 3)) > 0.5))
        logits = torch.tensor([[1.0, 0.0]]) + 0 * inputs.flatten(1)[:, :1]
        return logits.where(~lost[:, None], torch.nan)


def test_an_image_with_a_draw_that_is_not_finite_is_neither_fooled_nor_robust_nor_right():
    def brighter(model, inputs, labels):
        model(inputs)
        return (inputs + 0.1).clamp(0, 1)

    row = davylamp.as_implementation(brighter, norms=("linf",))
    images, labels = torch.tensor([0.2, 0.45]).view(2, 1, 1, 1).expand(2, 1, 4, 4), torch.zeros(2, dtype=torch.long)
    for share in (0.4, 1.0):
        model = Classifier(Lapsing(share), num_classes=2, random=True)
        result = run_attack(row, model, images, labels, ThreatModel("linf", 0.1), judge_samples=50)
        assert result.violations == ((), ("nan-logits",))
        assert (result.robust_rate.tolist(), result.fooled_rate.tolist()) == ([1.0, 0.0], [0.0, 0.0])
    with pytest.raises(InvalidInput, match="got NaN or infinity in a sample"):
        clean_draws(Classifier(Lapsing(0.2, clean=True), num_classes=2, random=True), images[:1], labels[:1])


# Whatever the seed of a run, the draws that judge are the same, so that runs can be set against each other.

BALL = ThreatModel("linf", 0.1)
ZEROS = torch.zeros(60, dtype=torch.long)
GREY = torch.linspace(0.1, 0.4, 60)[:, None, None, None].expand(60, 1, 4, 4).clone()
DRAWS = 20


class Dark(nn.Module):
    """Class 0 for every image."""

    def forward(self, inputs):
        return torch.tensor([[1.0, 0.0]]) + 0 * inputs.flatten(1)[:, :1]


def brighter(model, inputs, labels):
    """The same examples in every run."""
    model(inputs)
    return (inputs + 0.1).clamp(0, 1)


ROW = davylamp.as_implementation(brighter, norms=("linf",), kind="fixed-budget")
KNOWN = {"logits": torch.tensor([[1.0, -1.0]]).expand(60, 2), "judge_samples": DRAWS}


def attacked(seed):
    return run_attack(ROW, coin(), GREY, ZEROS, BALL, seed=seed, **KNOWN)


def transferred(seed):
    surrogate = Classifier(Dark(), num_classes=2)
    return run_transfer(ROW, coin(), surrogate, GREY, ZEROS, BALL, seed=seed, **KNOWN)


def rounded(seed):
    return round_to_8bit(attacked(seed), coin(), GREY)


def shares_of_today(images):
    """What the seed 0 gives: the share of the draws that are fooled, each spelt out."""
    model = Coin()
    torch.manual_seed(int(np.random.SeedSequence([0, 3, 1]).generate_state(1)[0]))
    return torch.stack([model(images).argmax(1) == 1 for _ in range(DRAWS)]).double().mean(0)


@pytest.mark.parametrize("way", [attacked, transferred, rounded])
def test_the_same_examples_get_the_same_verdict_whatever_the_seed_of_the_run(way):
    results = [way(seed) for seed in (0, 1, 7)]
    examples = results[0].adv_inputs if way is rounded else (GREY + 0.1).clamp(0, 1)
    expected = shares_of_today(examples)
    assert torch.equal(examples, quantise(examples)) or way is not rounded
    assert len(expected.unique()) > 5  # or this test says little
    for result in results:
        assert torch.equal(result.draws_fooled, expected)
        assert torch.equal(result.success, results[0].success)
        assert torch.equal(result.success_8bit, results[0].success_8bit)


def test_the_least_of_several_seeds_is_the_share_of_one():
    """With draws of its own for each of five seeds the least would be that of the luckiest: far below."""
    robust = torch.stack([attacked(seed).robust_rate for seed in range(5)])
    assert torch.equal(robust.amin(0), robust[0])
    truth = 1 - (GREY.mean((1, 2, 3)) + 0.1).double()
    spread = (truth * (1 - truth) / DRAWS).mean().sqrt() / len(truth) ** 0.5
    assert abs(float(robust.amin(0).mean() - truth.mean())) < 4 * float(spread)
