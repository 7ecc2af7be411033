"""The wrapper: same logits as the module, always in evaluation mode, one line for what is no classifier."""

import pytest
import torch
from torch import nn

from davylamp.adapters.models.classifier import Classifier
from davylamp.adapters.models.identity.digest import digest_model
from davylamp.adapters.models.images import check_images, check_labels
from davylamp.adapters.models.state_guard import preserve_module_state
from davylamp.errors import InvalidInput, ModelFailed


class Lambda(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, inputs):
        return self.function(inputs)


IMAGES = torch.rand(3, 3, 4, 4, generator=torch.Generator().manual_seed(0))


def make_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(16, 5))


def test_logits_are_those_of_the_module_on_normalised_images():
    net = make_net().eval()
    mean, std = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 0.6, 0.7])
    expected = net((IMAGES - mean.view(1, 3, 1, 1)) / std.view(1, 3, 1, 1))
    got = Classifier(net, mean=mean.tolist(), std=std.tolist())(IMAGES)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)


def test_a_classifier_changes_nothing_in_the_module_and_asks_it_in_evaluation_mode():
    net, twin = make_net().train(), make_net().eval()
    net[2].eval()
    next(net.parameters()).requires_grad_(False)
    modes, trained = [part.training for part in net.modules()], [p.requires_grad for p in net.parameters()]
    classifier = Classifier(net)
    for ask in (classifier, classifier.predict_logits, classifier.check, lambda _: digest_model(classifier)):
        assert [part.training for part in net.modules()] == modes
        assert [parameter.requires_grad for parameter in net.parameters()] == trained
        ask(IMAGES)
    assert torch.equal(classifier(IMAGES), twin(IMAGES))
    assert torch.equal(net[1].running_mean, twin[1].running_mean)
    assert digest_model(classifier) == digest_model(Classifier(twin))
    asked = IMAGES.clone().requires_grad_()
    classifier(asked).sum().backward()
    assert asked.grad is not None
    assert all(parameter.grad is None for parameter in net.parameters())


def test_evaluation_mode_cannot_be_left_while_a_model_is_frozen():
    net = make_net().train()
    classifier = Classifier(net)
    with classifier.frozen():
        classifier.train()
        with classifier.frozen():
            assert not any(module.training for module in net.modules())
        assert not any(parameter.requires_grad for parameter in net.parameters())
        assert torch.equal(classifier(IMAGES), classifier(IMAGES))
    assert all(module.training for module in net.modules())
    classifier.freeze()
    classifier.train()
    assert not any(module.training for module in net.modules())


def test_a_model_that_fails_is_put_back_too():
    def fail(images):
        raise ValueError("no")

    net = nn.Sequential(nn.Dropout(), Lambda(fail)).train()
    with pytest.raises(ModelFailed):
        Classifier(net)(IMAGES)
    assert net.training
    assert net[0].training


def test_a_layer_that_merges_its_weights_in_evaluation_mode_is_told_when_it_is_over():
    class Merging(nn.Linear):
        merged = False

        def train(self, mode=True):
            self.merged = not mode
            return super().train(mode)

    net = nn.Sequential(nn.Flatten(), Merging(48, 5)).train()
    classifier = Classifier(net)
    with classifier.frozen():
        assert net[1].merged
    assert not net[1].merged


def test_a_model_on_several_devices_stays_there():
    """The last layer, never asked, lies on a device to which and from which nothing can be moved."""
    net = make_net().append(nn.Linear(5, 5, device="meta"))
    net[-1].forward = lambda logits: logits
    classifier = Classifier(net)
    with preserve_module_state(net):
        assert classifier(IMAGES).shape == (3, 5)
    assert {parameter.device.type for parameter in net.parameters()} == {"cpu", "meta"}
    assert classifier.device.type == "cpu"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_the_model_gets_its_own_dtype_and_the_attack_gets_float32(dtype):
    seen = []
    net = nn.Sequential(Lambda(lambda x: (seen.append(x.dtype), x)[1]), nn.Flatten(), nn.Linear(48, 5)).to(dtype)
    logits = Classifier(net)(IMAGES.double())
    assert seen == [dtype]
    assert logits.dtype == torch.float32


def test_gradients_reach_a_float64_input():
    inputs = IMAGES.double().requires_grad_()
    Classifier(make_net())(inputs).sum().backward()
    assert inputs.grad is not None
    assert inputs.grad.abs().sum() > 0


@pytest.mark.parametrize("settings", [{}, {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7]}])
def test_gradients_are_contiguous_however_the_weights_lie(settings):
    """The libraries call view() on them."""
    inputs = IMAGES.clone().requires_grad_()
    plain = Classifier(make_net(), **settings)
    laid_out = Classifier(make_net(), **settings).to(memory_format=torch.channels_last)
    (expected,), (got,) = (torch.autograd.grad(module(inputs).sum(), inputs) for module in (plain, laid_out))
    assert got.is_contiguous()
    torch.testing.assert_close(got, expected)


def test_predictions_do_not_depend_on_how_many_images_are_given():
    classifier = Classifier(make_net())
    many = classifier.predict_logits(IMAGES.repeat(50, 1, 1, 1), batch_size=7)
    torch.testing.assert_close(many[:3], classifier.predict_logits(IMAGES), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x, "expected model outputs of shape"),
        (lambda x: x.flatten(1)[:2], "expected model outputs of shape"),
        (lambda x: x.flatten(1)[:, :1], "at least 2 classes"),
        (lambda x: x.flatten(1)[:, :5] / 0, "expected finite logits"),
    ],
)
def test_outputs_that_are_no_logits_are_refused_in_one_line(function, message):
    with pytest.raises(InvalidInput, match=message) as error:
        Classifier(Lambda(function)).check(IMAGES)
    assert "\n" not in str(error.value)


def test_a_wrong_class_count_is_refused():
    with pytest.raises(InvalidInput, match=r"expected model outputs of shape \(3, 7\), got \(3, 5\)"):
        Classifier(make_net(), num_classes=7).check(IMAGES)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (IMAGES * 255, r"expected images in \[0, 1\], got .* divide 8-bit images by 255"),
        (IMAGES - 0.5, r"expected images in \[0, 1\]"),
        (IMAGES.where(IMAGES > 0.1, torch.nan), "got NaN or infinity"),
        (IMAGES[0], r"expected images of shape \(N, C, H, W\)"),
        (IMAGES[:0], r"at least one image of shape \(N, C, H, W\), got 0"),
        ((IMAGES * 255).byte(), "expected floating point images"),
    ],
)
def test_wrong_images_are_refused(images, message):
    with pytest.raises(InvalidInput, match=message):
        check_images(images)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0, 1, 5]), "expected labels from 0 to 4, got values from 0 to 5"),
        (torch.tensor([0, -1, 2]), "expected labels from 0 to 4"),
        (torch.tensor([0, 1]), r"expected labels of shape \(3,\)"),
        (torch.tensor([0.0, 1.0, 2.0]), "expected integer labels"),
    ],
)
def test_wrong_labels_are_refused(labels, message):
    with pytest.raises(InvalidInput, match=message):
        check_labels(labels, 3, 5)


@pytest.mark.parametrize("labels", [[0, 1, 2], None])
def test_labels_must_be_a_tensor(labels):
    with pytest.raises(TypeError, match=r"expected labels as a torch\.Tensor"):
        check_labels(labels, 3, 5)


@pytest.mark.parametrize(
    ("mean", "std", "said"),
    [
        ([0.5] * 3, None, "mean and std must be given together"),
        ([0.5] * 3, [0.5, 0.0, 0.5], "every std > 0"),
        (torch.zeros(3, 2, 2), torch.ones(3, 2, 2), "one number for each channel"),
    ],
)
def test_a_normalisation_that_is_none_is_refused(mean, std, said):
    with pytest.raises(InvalidInput, match=said):
        Classifier(make_net(), mean=mean, std=std)


@pytest.mark.parametrize("shape", [(3,), (3, 1, 1), (1, 3, 1, 1)])
def test_a_normalisation_may_have_the_shape_by_which_it_is_subtracted(shape):
    mean, std = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 0.6, 0.7])
    listed, shaped = (
        Classifier(nn.Flatten(), mean=mean_, std=std_, num_classes=12)
        for mean_, std_ in ((mean.tolist(), std.tolist()), (mean.view(shape), std.view(shape)))
    )
    images = torch.rand(2, 3, 2, 2)
    assert torch.equal(listed(images), shaped(images))
