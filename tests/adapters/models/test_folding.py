"""Folded batch normalisation computes what the model computed before, and nothing is folded where it would not."""

import copy

import pytest
import torch
from torch import nn

from davylamp.adapters import Classifier
from davylamp.adapters.models.fold_batch_norm import fold_batch_norms
from davylamp.adapters.models.identity.digest import digest_model
from davylamp.adapters.models.zoo.load import load_model

SIDE = 16


def norm(channels, **options):
    """Batch normalisation that has seen data: statistics, scale and shift are not those of a new layer."""
    layer = nn.BatchNorm2d(channels, **options)
    for tensor in (layer.running_mean, layer.bias):
        if tensor is not None:
            nn.init.uniform_(tensor, -0.5, 0.5)
    for tensor in (layer.running_var, layer.weight):
        if tensor is not None:
            nn.init.uniform_(tensor, 0.5, 2)
    return layer


def head(channels):
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5)


class TwoUses(nn.Module):
    """The convolution's output goes to the norm and around it."""

    def __init__(self):
        super().__init__()
        self.convolution, self.norm, self.head = nn.Conv2d(3, 4, 3), norm(4), nn.Sequential(*head(4))

    def forward(self, inputs):
        maps = self.convolution(inputs)
        return self.head(self.norm(maps).relu() + maps)


class Asks(nn.Module):
    """Its forward pass wants an attribute of the norm."""

    def __init__(self):
        super().__init__()
        self.convolution, self.norm, self.head = nn.Conv2d(3, 4, 3), norm(4), nn.Sequential(*head(4))

    def forward(self, inputs):
        return self.head(self.norm(self.convolution(inputs)) * self.norm.eps)


class Twice(nn.Module):
    """One convolution, run twice, each time with a norm of its own, behind one that is run once."""

    def __init__(self):
        super().__init__()
        self.start = nn.Sequential(nn.Conv2d(3, 3, 3), norm(3))
        self.convolution, self.one, self.two = nn.Conv2d(3, 3, 3), norm(3), norm(3)
        self.head = nn.Sequential(*head(3))

    def forward(self, inputs):
        return self.head(self.two(self.convolution(self.one(self.convolution(self.start(inputs))))))


def plain():
    layers = nn.Conv2d(3, 4, 3, bias=False), norm(4), nn.ReLU(inplace=True), nn.Conv2d(4, 6, 3, groups=2), norm(6)
    return nn.Sequential(*layers, nn.ReLU(), *head(6))


def without_scale():
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), norm(4, affine=False), *head(4))


def computed_weight():
    reparametrised = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3))
    return nn.Sequential(reparametrised, norm(4), nn.Conv2d(4, 4, 3), norm(4), *head(4))


def activated_between():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), norm(4), nn.Conv2d(4, 4, 3), norm(4), *head(4))


def of_the_batch():
    return nn.Sequential(nn.Conv2d(3, 4, 3), norm(4, track_running_stats=False), *head(4))


@pytest.mark.parametrize(
    ("factory", "count"),
    [
        (plain, 2),
        (without_scale, 1),
        (activated_between, 1),
        (computed_weight, 1),
        (of_the_batch, 0),
        (TwoUses, 0),
        (Asks, 0),
        (Twice, 1),
        (lambda: nn.Sequential(*head(3)), 0),
        (lambda: plain().half(), 0),
    ],
)
def test_what_is_folded_computes_the_same(factory, count):
    torch.manual_seed(0)
    classifier = Classifier(factory())
    before = copy.deepcopy(classifier)
    inputs = torch.rand(3, 3, SIDE, SIDE, requires_grad=True)
    assert fold_batch_norms(classifier, SIDE) == count
    norms = [sum(isinstance(part, nn.BatchNorm2d) for part in model.modules()) for model in (before, classifier)]
    assert norms[0] - norms[1] == count
    logits, folded = before(inputs), classifier(inputs)
    torch.testing.assert_close(folded, logits, rtol=1e-5, atol=1e-5)
    gradients = [torch.autograd.grad(out.square().sum(), inputs)[0] for out in (logits, folded)]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)
    if not count:
        assert all(map(torch.equal, before.state_dict().values(), classifier.state_dict().values()))
        assert classifier.known_as == {}


def test_timm_norms_keep_their_activation():
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    classifier = Classifier(timm.create_model("resnetv2_50", num_classes=7))
    inputs = torch.rand(2, 3, 64, 64)
    before = classifier(inputs)
    # The two inside each of the 16 blocks; the first of each comes before the convolution.
    assert fold_batch_norms(classifier, 64) == 32
    torch.testing.assert_close(classifier(inputs), before, rtol=1e-4, atol=1e-5)


def test_a_folded_model_keeps_its_digest_until_it_is_changed():
    torch.manual_seed(0)
    classifier = Classifier(plain())
    digest = digest_model(classifier)
    assert fold_batch_norms(classifier, SIDE) == 2
    assert digest_model(classifier) == digest
    with torch.no_grad():
        classifier.model[0].weight.add_(0.1)
    assert digest_model(classifier) != digest


def test_models_by_name_are_folded_unless_told_otherwise():
    name = "demo:efficientnet-lite0"
    folded, whole = load_model(name), load_model(name, fold=False)
    norms = [sum(isinstance(part, nn.BatchNorm2d) for part in model.modules()) for model in (folded, whole)]
    assert norms == [0, 49]
    assert digest_model(folded) == digest_model(whole)
    inputs = torch.rand(2, 3, 224, 224)
    torch.testing.assert_close(folded(inputs), whole(inputs), rtol=1e-4, atol=1e-4)


def test_models_for_another_device_are_folded_before_they_go_there():
    model = load_model("demo:efficientnet-lite0", device="meta")  # where nothing can be computed
    assert all(part.device.type == "meta" for part in model.state_dict().values())
    assert not any(isinstance(part, nn.BatchNorm2d) for part in model.modules())
