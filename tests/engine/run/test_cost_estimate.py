"""An estimate before anything runs, against what the same call then needs. No time is compared."""

import math

import pytest
import torch
from torch import nn

import davylamp
from davylamp.errors import DavylampError, InvalidInput

ATTACKS = ["foolbox:pgd", "foolbox:fgsm", "torchattacks:square"]
STEPS = 10


@pytest.fixture(scope="module")
def still():
    """A network that no attack fools, so that each needs all its passes, and its images."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(108, 3))
    with torch.no_grad():
        net[1].weight.mul_(1e-3)
        net[1].bias.copy_(torch.tensor([5.0, 0.0, 0.0]))
    return net, torch.rand(12, 3, 6, 6), torch.zeros(12, dtype=torch.long)


def call(still, out, **more):
    net, images, labels = still
    named = {"net": net, "other": nn.Sequential(net, nn.Identity())}
    keywords = {"attacks": ATTACKS, "epsilon": 0.1, "steps": STEPS, "max_queries": 40, "out": out, **more}
    return (davylamp.evaluate, named, images, labels), keywords


def test_the_passes_are_those_that_the_call_then_needs(still, tmp_path):
    (verb, *nouns), keywords = call(still, tmp_path / "out")
    expected = davylamp.estimate(verb, *nouns, **keywords)
    assert not (tmp_path / "out").exists()
    verb(*nouns, **keywords)
    frame = davylamp.load(tmp_path / "out")
    counted = (frame["forwards"] + frame["backwards"]).groupby(frame["model"]).sum()
    for row in expected.made:
        assert (row.images, row.runs, row.finished) == (12, 3, 0)
        assert row.passes - row.images == pytest.approx(counted[row.model], rel=0.15)  # clean predictions beside
        assert row.seconds > 0
        assert row.memory > 1e8
    document = expected.to_dict()
    assert document["runs"] == 6
    assert document["passes"] == sum(row.passes for row in expected.made)


def test_finished_runs_cost_nothing(still, tmp_path):
    (verb, *nouns), keywords = call(still, tmp_path / "out")
    verb(*nouns, **{**keywords, "attacks": ATTACKS[:1]})
    before = sorted(path.name for path in (tmp_path / "out").rglob("*"))
    row = davylamp.estimate(verb, *nouns, **keywords).made[0]
    assert (row.runs, row.finished) == (2, 1)
    assert sorted(path.name for path in (tmp_path / "out").rglob("*")) == before
    done = davylamp.estimate(verb, *nouns, **{**keywords, "attacks": ATTACKS[:1]})
    assert (done.document["runs"], done.document["seconds"], done.document["passes"]) == (0, 0.0, 0.0)


def test_a_model_behind_a_server_has_a_price_and_a_rate_and_is_not_queried(still, tmp_path):
    net, images, labels = still
    seen = []
    net.register_forward_hook(lambda *_: seen.append(1))
    name = "http://127.0.0.1:9/v2/models/m"
    keywords = {"attacks": "torchattacks:square", "epsilon": 0.1, "max_queries": 40, "out": tmp_path / "out"}
    (row,) = davylamp.estimate(
        davylamp.evaluate, {name: net}, images, labels, price_per_image=0.5, request_rate="20", **keywords
    ).made
    queried = len(seen)
    assert row.passes <= 12 * 41
    assert (row.price, row.seconds) == (row.passes * 0.5, row.passes / 20)
    assert math.isnan(row.memory)
    (row,) = davylamp.estimate(davylamp.evaluate, {name: net}, images, labels, **keywords).made
    assert math.isnan(row.seconds)
    assert len(seen) == 2 * queried  # to identify it, as in the call itself


def test_robust_accuracy_has_one_too(still, tmp_path):
    net, images, labels = still
    result = davylamp.estimate(davylamp.robust_accuracy, net, images, labels, epsilon=0.1)
    assert result.document["runs"] == 1
    davylamp.robust_accuracy(net, images, labels, epsilon=0.1, out=tmp_path / "out")
    (measured,) = davylamp.load(tmp_path / "out").groupby("model")[["forwards", "backwards"]].sum().to_numpy()
    assert result.made[0].passes - 12 == pytest.approx(measured.sum(), rel=0.15)


def test_samples_of_a_random_model_multiply_the_passes(still, tmp_path):
    net, images, labels = still
    keywords = {"attacks": "torchattacks:pgd", "epsilon": 0.1, "steps": STEPS, "out": tmp_path / "out"}
    random = davylamp.Classifier(net, random=True)
    one, three = (
        davylamp.estimate(davylamp.evaluate, random, images, labels, eot=eot, **keywords).made[0].passes
        for eot in (1, 3)
    )
    assert (one, three) == (12 + 12 * 20, 12 + 3 * 12 * 20)


def test_only_these_verbs_and_their_own_errors(still):
    with pytest.raises(InvalidInput, match=r"davylamp\.evaluate or"):
        davylamp.estimate(davylamp.compare, "pgd")
    with pytest.raises(DavylampError, match="unknown"):
        davylamp.estimate(davylamp.evaluate, still[0], *still[1:], attacks="no-such-attack")


@pytest.mark.parametrize("line", ["evaluate --attacks foolbox:fgsm --models", "robust-accuracy"])
def test_the_commands(run, line, tmp_path):
    words = [*line.split(), "demo:digits-cnn", "--data", "demo:digits", "--limit", "4", "--epsilon", "0.1"]
    code, out, _ = run(*words, "--estimate")
    assert code == 0
    assert out.startswith("about ")
    assert "nothing was run" in out.splitlines()[0]
    assert not list(tmp_path.iterdir())
