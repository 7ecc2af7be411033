"""The certificate of randomized smoothing: its bound, its radius where the truth is known, and the command."""

import json

import numpy as np
import pytest
import scipy
import torch
from torch import nn

from davylamp.adapters import Classifier
from davylamp.engine.certify import (
    ABSTAIN,
    Certificates,
    certified_accuracy,
    certify,
    probability_lower_bound,
    split_smoothed,
)
from davylamp.errors import InvalidInput

SIGMA = 0.5


@pytest.fixture(scope="module")
def halves():
    """A linear model of two classes: its smoothed version's radius is the distance to the plane, in closed form."""
    layer = nn.Linear(12, 2, bias=False)
    direction = torch.randn(12, generator=torch.Generator().manual_seed(0))
    layer.weight.data = torch.stack([direction, -direction])
    images = torch.rand(30, 3, 2, 2, generator=torch.Generator().manual_seed(1))
    distance = images.flatten(1) @ direction / direction.norm()
    return Classifier(nn.Sequential(nn.Flatten(), layer)), images, distance.numpy()


def test_the_bound_is_scipys_one_sided_interval():
    for hits, draws in ((0, 10), (3, 10), (990, 1000), (1000, 1000)):
        exact = scipy.stats.binomtest(hits, draws, alternative="greater").proportion_ci(0.999, "exact")
        assert probability_lower_bound(hits, draws, 0.001) == pytest.approx(exact.low, abs=1e-12)
    assert probability_lower_bound(1000, 1000, 0.001) == pytest.approx(0.001 ** (1 / 1000))


def test_of_a_linear_model_the_radius_is_the_distance_to_its_plane(halves):
    classifier, images, distance = halves
    made = certify(classifier, images, sigma=SIGMA, first=50, draws=5000)
    certain = made.predicted != ABSTAIN
    assert (made.predicted == (distance < 0))[certain].all()
    assert (made.radius[certain] <= np.abs(distance)[certain]).all()  # holds up to alpha for each
    seen = certain & (np.abs(distance) < 2 * SIGMA)  # farther out no noise of 5000 crosses
    assert seen.sum() > 8
    assert (made.radius[seen] >= np.abs(distance)[seen] - 0.12 * SIGMA - 0.1 * np.abs(distance)[seen]).all()
    assert (np.abs(distance)[~certain] < 0.3 * SIGMA).all()  # the class was guessed by 50 draws
    again = certify(classifier, images[:5], sigma=SIGMA, first=50, draws=5000)
    assert again.radius.tolist() == made.radius[:5].tolist()
    more = certify(classifier, images[:5], sigma=SIGMA, first=50, draws=5000, alpha=0.1)
    assert (more.radius >= again.radius).all()


def test_arts_certificate_is_the_same(halves, monkeypatch):
    """ART's own radius from the same counts: it takes statsmodels, of which one function is stood in for."""
    import sys
    import types

    from art.estimators.certification.randomized_smoothing.randomized_smoothing import RandomizedSmoothingMixin

    def confint(count, nobs, alpha, method):
        assert method == "beta"
        return scipy.stats.binomtest(int(count), int(nobs)).proportion_ci(1 - alpha, "exact")

    proportion = types.ModuleType("statsmodels.stats.proportion")
    proportion.proportion_confint = confint
    for name in ("statsmodels", "statsmodels.stats"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "statsmodels.stats.proportion", proportion)
    classifier, images, distance = halves

    class Smooth(RandomizedSmoothingMixin):
        nb_classes = 2

        def _predict_classifier(self, x, batch_size, training_mode, **kwargs):
            return classifier(torch.from_numpy(x).float()).numpy()

        def _fit_classifier(self, *arguments, **kwargs):
            raise NotImplementedError

        def predict(self, x, batch_size=128, **kwargs):
            raise NotImplementedError

        def fit(self, *arguments, **kwargs):
            raise NotImplementedError

    np.random.seed(0)
    theirs = Smooth(sample_size=500, scale=SIGMA, alpha=0.001).certify(images[:12].numpy(), n=2000)
    ours = certify(classifier, images[:12], sigma=SIGMA, first=500, draws=2000)
    far = np.abs(distance[:12]) > 0.3 * SIGMA
    assert theirs[0][far].tolist() == ours.predicted[far].tolist()
    near = far & (np.abs(distance[:12]) < 2 * SIGMA)
    assert near.sum() >= 4
    np.testing.assert_allclose(ours.radius[near], theirs[1][near], atol=0.12 * SIGMA)  # other draws
    sure = ours.chance > 0.001 ** (1 / 2000) - 1e-9
    np.testing.assert_allclose(ours.radius[sure], theirs[1][sure])


def test_the_certified_accuracy_counts_what_is_right_and_far_enough():
    made = Certificates(np.array([0, 1, ABSTAIN, 1]), np.array([0.3, 0.1, 0.0, 0.5]), np.zeros(4), np.zeros(4, int))
    lines = certified_accuracy(made, torch.tensor([0, 1, 0, 0]), (0.0, 0.2, 0.4))
    assert [line.accuracy for line in lines] == [0.5, 0.25, 0.0]
    assert (lines[0].low, lines[0].high) == pytest.approx((0.0676, 0.9324), abs=1e-4)
    assert lines[0].n == 4


def test_the_command(run, tmp_path):
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\n\n\ndef build():\n    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))\n"
    )
    options = ("--data", "foolbox:cifar10", "--limit", "3", "--n", "200", "--n0", "20")
    code, out, err = run("certify", "net.py:build+smoothing:sigma=0.1", *options, "--radius", "0,0.1", "--json")
    assert code == 0, err
    document = json.loads(out)
    assert [line["n"] for line in document["certified_accuracy"]] == [3, 3]
    assert {"image", "label", "predicted", "radius", "chance", "not_finite"} == set(document["images"][0])
    code, out, _ = run("certify", "net.py:build+smoothing:sigma=0.1", *options)
    assert (code, "certified l2 radius" in out) == (0, True)
    (tmp_path / "void.py").write_text(
        "import torch\nfrom torch import nn\n\n\nclass Void(nn.Module):\n    def forward(self, inputs):\n"
        "        return torch.full((len(inputs), 10), torch.nan)\n\n\ndef build():\n    return Void()\n"
    )
    code, out, err = run("certify", "void.py:build+smoothing:sigma=0.1", *options, "--json")
    assert (code, [each["predicted"] for each in json.loads(out)["images"]]) == (0, [None] * 3)
    assert "660 of 660 samples" in err
    (tmp_path / "one.py").write_text(
        "from torch import nn\n\n\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 1))\n"
    )
    np.savez(tmp_path / "far.npz", inputs=np.full((2, 3, 32, 32), 0.5, np.float32), labels=np.array([3, 12]))
    uncertified = "expected MODEL+smoothing:sigma=0.25, which has a certificate, got '{}'"
    for name, named, *more in (
        ("net.py:build", uncertified, *options),
        ("net.py:build+noise", uncertified, *options),
        ("net.py:build+smoothing+jpeg", uncertified, *options),
        ("net.py:build+smoothing", "alpha", *options, "--alpha", "0.7"),
        ("net.py:build+smoothing", "every radius >= 0, got -1", *options, "--radius", "-1"),
        ("one.py:build+smoothing", "at least 2 classes", *options),
        ("net.py:build+smoothing", "labels from 0 to 9", "--data", "npz:far.npz"),
    ):
        code, _, err = run("certify", name, *more)
        assert (code, named.format(name) in err) == (1, True), err


def test_what_is_no_smoothed_model():
    assert split_smoothed("demo:x+jpeg+smoothing:sigma=0.5,draws=3") == ("demo:x+jpeg", 0.5)
    with pytest.raises(InvalidInput, match="got 'smoothing'"):
        split_smoothed("smoothing")


class NaNBeyond(nn.Module):
    """Class 1 for images whose mean is at most the limit, and no finite answer for the others."""

    def __init__(self, limit):
        super().__init__()
        self.limit = limit

    def forward(self, inputs):
        mean = inputs.mean((1, 2, 3))
        logits = torch.stack([torch.zeros_like(mean), torch.ones_like(mean)], 1)
        return logits.where((mean <= self.limit)[:, None], torch.nan)


def test_a_draw_that_is_not_finite_is_of_no_class_and_stays_among_the_draws():
    """The share of finite answers is the normal distribution's; class 0, of which argmax would take them, gets none."""
    images = torch.full((2, 1, 2, 2), 0.5)
    never = certify(Classifier(NaNBeyond(-1e9), num_classes=2), images, sigma=SIGMA, first=10, draws=100)
    assert never.predicted.tolist() == [ABSTAIN] * 2
    assert (never.radius.tolist(), never.not_finite.tolist()) == ([0.0, 0.0], [110, 110])
    # the mean of four pixels has the standard deviation sigma / 2: 84.13 % of the answers are finite
    made = certify(Classifier(NaNBeyond(0.5 + SIGMA / 2), num_classes=2), images, sigma=SIGMA, first=1000, draws=4000)
    share = scipy.stats.norm.cdf(1)
    assert made.predicted.tolist() == [1, 1]
    assert made.not_finite == pytest.approx(5000 * (1 - share), abs=4 * (5000 * share * (1 - share)) ** 0.5)
    expected = scipy.stats.beta.ppf(0.001, 4000 * share, 4000 * (1 - share) + 1)
    assert made.chance == pytest.approx(expected, abs=4 * (share * (1 - share) / 4000) ** 0.5)
    assert (made.radius < SIGMA).all()  # that of a share of 84.13 %
