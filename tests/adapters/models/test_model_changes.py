"""Defences that change the model: pruned, rounded and averaged as torch and formulas have it, with true gradients."""

import numpy as np
import pytest
import torch
from torch import nn

import davylamp
from davylamp.adapters import Classifier, defend
from davylamp.adapters.models.defences.catalogue import DEFENCES
from davylamp.adapters.models.defences.names import is_defence, member_of, parse_defence
from davylamp.adapters.models.identity.digest import identify_model
from davylamp.adapters.models.sandbox.isolation import Isolation, foreign_files, read_files
from davylamp.engine.challenge.gradient_variants import gradient_variants
from davylamp.errors import InvalidInput, Unsupported

LENET, ROBUST = "demo:mnist-lenet5", "demo:mnist-lenet5-robust"
FACTORY = """
import torch
from torch import nn

def build():
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))

def five():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 5))
"""


@pytest.fixture(scope="module")
def images():
    return davylamp.load_data("demo:mnist").inputs[:8]


def make_net():
    """A small network with each kind of weights, and ones that are none: norms, biases, an embedding of places."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 26 * 26, 10)]
    return nn.Sequential(*layers).eval()


def weights_of(classifier):
    return {name: value for name, value in classifier.named_parameters() if name.endswith("weight") and value.ndim > 1}


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("amount", [0.25, 0.9])
def test_the_smallest_weights_of_all_layers_together_become_0(amount, memory_format):
    net = make_net().to(memory_format=memory_format)
    before = {name: value.detach().clone() for name, value in net.state_dict().items()}
    pruned = defend(Classifier(net), f"prune:amount={amount}")
    assert all(
        torch.equal(value, before[name]) for name, value in net.state_dict().items()
    )  # the given one is as it was
    old = np.concatenate([value.numpy().ravel() for name, value in before.items() if name in ("0.weight", "4.weight")])
    new = np.concatenate([value.detach().numpy().ravel() for value in weights_of(pruned).values()])
    removed = round(amount * len(old))
    assert (new == 0).sum() == removed
    assert np.abs(old[new == 0]).max() <= np.abs(old[new != 0]).min()
    np.testing.assert_array_equal(new[new != 0], old[new != 0])
    assert not {name for name in pruned.state_dict() if "mask" in name or "orig" in name}


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_are_whole_multiples_of_the_scale_of_their_channel(bits):
    net, most = make_net(), 2 ** (bits - 1) - 1
    before = {name: value.detach().clone() for name, value in net.state_dict().items()}
    rounded = defend(Classifier(net), f"quantise-weights:bits={bits}")
    for (name, weight), old in zip(weights_of(rounded).items(), (before["0.weight"], before["4.weight"]), strict=True):
        values = old.flatten(1).double().numpy()
        scales = np.abs(values).max(1, keepdims=True) / most
        wanted = torch.from_numpy(np.rint(values / scales) * scales).float().view_as(weight)
        torch.testing.assert_close(weight.detach(), wanted, msg=name)
        counts = [len(channel.unique()) for channel in weight.flatten(1)]
        assert 2 < max(counts) <= 2 * most + 1
    assert torch.equal(rounded.state_dict()["model.model.1.running_mean"], before["1.running_mean"])


def test_a_layer_of_zeros_stays_one():
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    nn.init.zeros_(net[1].weight)
    (weight,) = weights_of(defend(Classifier(net), "quantise-weights:bits=3")).values()
    assert torch.equal(weight, torch.zeros(2, 4))


def test_an_ensemble_is_the_mean_of_the_probabilities(images):
    models = [davylamp.load_model(name) for name in (LENET, ROBUST, "demo:mnist-lenet5+quantise-weights:bits=2")]
    mean = torch.stack([model(images).softmax(1) for model in models]).mean(0)
    two = davylamp.load_model(f"{LENET}+ensemble:{ROBUST}")
    torch.testing.assert_close(two(images).softmax(1), torch.stack([m(images).softmax(1) for m in models[:2]]).mean(0))
    three = defend(two, f"davylamp:ensemble:{LENET}")  # of equal weight, not of the mean of a mean
    wanted = torch.stack([models[index](images).softmax(1) for index in (0, 1, 0)]).mean(0)
    torch.testing.assert_close(three(images).softmax(1), wanted)
    assert not torch.allclose(wanted, mean)
    assert (two.name, two.random) == (f"{LENET}+ensemble:{ROBUST}", False)


@pytest.mark.parametrize("name", ["prune:amount=0.5", "quantise-weights:bits=3"])
def test_gradients_are_finite_differences(images, name):
    net = make_net()
    net[2] = nn.Softplus()
    model, point = defend(Classifier(net), name), images[:2].clone().requires_grad_()
    direction = torch.randn(point.shape, generator=torch.Generator().manual_seed(0))
    (gradient,) = torch.autograd.grad(model(point)[:, 3].sum(), point)
    ahead, behind = (float(model(point.detach() + sign * 1e-2 * direction)[:, 3].sum()) for sign in (1, -1))
    assert float((gradient * direction).sum()) == pytest.approx((ahead - behind) / 2e-2, rel=1e-2)
    assert parse_defence(name).gradients == "exact"


def test_gradients_of_an_ensemble_are_those_of_the_mean(images):
    point = images[:2].clone().requires_grad_()
    models = [davylamp.load_model(name) for name in (LENET, ROBUST)]
    mean = torch.stack([model(point).softmax(1) for model in models]).mean(0)
    (wanted,) = torch.autograd.grad(mean[:, 3].log().sum(), point)
    (gradient,) = torch.autograd.grad(davylamp.load_model(f"{LENET}+ensemble:{ROBUST}")(point)[:, 3].sum(), point)
    torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-6)


def test_each_is_a_model_of_its_own_and_hides_nothing():
    names = ["prune", "prune:amount=0.6", "quantise-weights", "quantise-weights:bits=4", f"ensemble:{ROBUST}"]
    identities = [identify_model(davylamp.load_model(f"{LENET}+{name}")) for name in names]
    identities.append(identify_model(davylamp.load_model(LENET)))
    assert all(identity.reasons == () for identity in identities)
    assert len({identity.digest for identity in identities}) == len(names) + 1
    assert identities[0].digest == identify_model(davylamp.load_model(f"{LENET}+torch:prune:amount=0.5")).digest


def test_weights_are_changed_as_they_were_published_whether_norms_are_folded_or_not():
    name = "demo:efficientnet-lite0"
    changed = davylamp.load_model(f"{name}+prune:amount=0.5")
    wanted = defend(davylamp.load_model(name, fold=False), "prune:amount=0.5")
    for one, other in zip(weights_of(changed).values(), weights_of(wanted).values(), strict=True):
        assert torch.equal(one, other)


def test_attacks_meet_the_changed_model(images):
    labels = davylamp.load_data("demo:mnist").labels[:8]
    options = {"norm": "linf", "epsilon": 0.3, "steps": 10, "step_size": 0.06}
    for name in ("prune:amount=0.3", "quantise-weights:bits=4", f"ensemble:{LENET}"):
        result = davylamp.run_attack("foolbox:pgd", davylamp.load_model(f"{LENET}+{name}"), images, labels, **options)
        assert not any(result.violations), name
        assert result.success.float().mean() > 0.5, name


def test_files_of_a_member_are_files_of_the_model(tmp_path, images):
    file = tmp_path / "net.py"
    file.write_text(FACTORY, encoding="utf-8")
    name = f"{LENET}+ensemble:{file}:build"
    assert (member_of(f"ensemble:{file}:build"), member_of("jpeg:quality=3")) == (f"{file}:build", "")
    assert foreign_files(name) == [file]
    assert read_files(name) == [file]
    assert Isolation("auto").covers(name)
    assert davylamp.load_model(name)(images).shape == (8, 10)
    with pytest.raises(InvalidInput, match="10 and 5 classes"):
        davylamp.load_model(f"{LENET}+ensemble:{file}:five")(images)


def test_mistakes_are_named():
    with pytest.raises(Unsupported, match="no weights in this process"):
        defend(Classifier(nn.Flatten()), "prune")
    for text in ("ensemble", "davylamp:ensemble:"):
        with pytest.raises(InvalidInput, match="ensemble:MODEL"):
            parse_defence(text)
    for text in ("prune:amount=0", "prune:amount=1", "quantise-weights:bits=1", "quantise-weights:bits=9"):
        with pytest.raises(InvalidInput):
            parse_defence(text)
    with pytest.raises(InvalidInput, match="exact"):
        parse_defence("quantise-weights:gradients=none")
    assert is_defence(f"ensemble:{LENET}")
    assert gradient_variants(f"{LENET}+ensemble:{ROBUST}") == {}
    assert {"torch:prune", "torch:quantise-weights", "davylamp:ensemble"} <= {*DEFENCES}


def test_weights_that_are_computed_from_others_are_refused():
    net = nn.Sequential(nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(784, 10)))
    with pytest.raises(Unsupported, match="weight_norm"):
        defend(Classifier(net), "prune:amount=0.5")
