"""Grad-CAM by hand, against captum and over architectures; similarity of attention."""

import math

import numpy as np
import pytest
import torch
import torchvision
from torch import nn

from davylamp.metrics import grad_cam, predicted_attention_similarity, true_attention_similarity

SMALL = {  # the smallest of each family, and the side of its input
    "alexnet": 64,
    "convnext_tiny": 64,
    "densenet121": 64,
    "efficientnet_v2_s": 64,
    "googlenet": 64,
    "inception_v3": 107,
    "mnasnet0_5": 64,
    "mobilenet_v3_small": 64,
    "regnet_y_400mf": 64,
    "resnet18": 64,
    "shufflenet_v2_x0_5": 64,
    "squeezenet1_1": 64,
    "swin_t": 64,
    "vgg11": 64,
    "vit_b_32": 64,
}


class Wrapper(nn.Module):
    """Normalises before the model, as users do."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs):
        return self.model((inputs - 0.5) / 0.25)


def build(name):
    """A classifier with random weights, as small as its family allows."""
    models, options = torchvision.models, {"num_classes": 7}
    if name == "vit_b_32":
        model = models.VisionTransformer(64, 32, 2, 2, 16, 32, **options)
        nn.init.normal_(model.heads.head.weight)  # zeros, as torchvision leaves it
        return model
    if name == "swin_t":
        return models.SwinTransformer([4, 4], 8, [1] * 4, [1] * 4, [2, 2], **options)
    if name in ("googlenet", "inception_v3"):
        options |= {"init_weights": False, "aux_logits": False}
    if name not in ("alexnet", "vgg11"):
        return getattr(models, name)(weights=None, **options)
    with torch.device("meta"):  # torchvision takes seconds to fill their wide heads
        model = getattr(models, name)(weights=None, **options)
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.05, 0.05)
    return model


@pytest.fixture(scope="module", params=SMALL)
def architecture(request):
    """A classifier of each architecture of CANARY, its name and images for it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        side = SMALL[request.param]
        return request.param, build(request.param).eval(), torch.rand(2, 3, side, side)


def small_network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 5, 3), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(20, 6)).double().eval()


INPUTS = torch.rand(5, 3, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
CLASSES = torch.tensor([0, 1, 2, 3, 5])


@pytest.mark.parametrize("score", ["logit", "softmax"])
@pytest.mark.parametrize("layer", ["0", "1", "2", "3"])
def test_against_the_definition(score, layer):
    model = small_network()
    cams = grad_cam(model, INPUTS, CLASSES, layer, score=score)
    index = int(layer) + 1
    for image, label, cam in zip(INPUTS, CLASSES, cams, strict=True):
        activation = model[:index](image[None]).detach().clone().requires_grad_()
        logits = model[index:](activation.clone())
        value = logits[0, label] if score == "logit" else logits.softmax(1)[0, label]
        (gradient,) = torch.autograd.grad(value, activation)
        expected = (gradient.mean((2, 3), keepdim=True) * activation).sum(1).clamp(min=0)[0]
        torch.testing.assert_close(cam, expected.detach())


@pytest.mark.parametrize("score", ["logit", "softmax"])
def test_several_classes_are_what_each_gives_alone_for_one_pass(score):
    model, passes = small_network(), []
    model.register_forward_hook(lambda *_: passes.append(1))
    several = torch.stack((CLASSES, CLASSES.flip(0), CLASSES), 1)
    together = grad_cam(model, INPUTS, several, "2", score=score)
    assert len(passes) == 1
    for column in range(3):
        torch.testing.assert_close(together[:, column], grad_cam(model, INPUTS, several[:, column], "2", score=score))
    assert grad_cam(model, INPUTS[:0], CLASSES[:0], "2").shape == (0, *together.shape[2:])
    assert grad_cam(model, INPUTS[:0], several[:0], "2").shape == (0, 3, *together.shape[2:])
    with pytest.raises(ValueError, match="expected at least one class for each image"):
        grad_cam(model, INPUTS, several[:, :0], "2")


def test_the_model_is_left_as_it_was():
    model = small_network().requires_grad_(False)
    with torch.no_grad():
        cams = grad_cam(model, INPUTS, CLASSES, "3")
    assert not cams.requires_grad
    assert all(not module._forward_hooks for module in model.modules())
    torch.testing.assert_close(cams, grad_cam(small_network(), INPUTS, CLASSES, layer="3"))
    torch.testing.assert_close(cams, grad_cam(model, INPUTS, CLASSES, model[3]))
    torch.testing.assert_close(cams[1:2], grad_cam(model, INPUTS[1:2], CLASSES[1:2], "3"))


def test_the_layer_is_found_in_every_architecture(architecture):
    _, model, inputs = architecture
    classes = torch.arange(7)
    cams = grad_cam(model, inputs[:1].expand(7, -1, -1, -1), classes)
    assert len(cams) == 7
    assert min(cams.shape[1:]) >= 2
    assert cams.isfinite().all()
    assert (cams >= 0).all()
    assert len({tuple(cam.flatten().tolist()) for cam in cams}) > 1
    wrapped = grad_cam(Wrapper(model), inputs, torch.tensor([1, 4]))
    assert wrapped.shape == (2, *cams.shape[1:])


# Those that captum knows: its maps have no tokens.
LAYERS = {
    "alexnet": lambda model: model.features[11],
    "convnext_tiny": lambda model: model.features,
    "densenet121": lambda model: model.features,
    "efficientnet_v2_s": lambda model: model.features,
    "googlenet": lambda model: model.inception5b,
    "inception_v3": lambda model: model.Mixed_7c,
    "mnasnet0_5": lambda model: model.layers,
    "mobilenet_v3_small": lambda model: model.features,
    "regnet_y_400mf": lambda model: model.trunk_output,
    "resnet18": lambda model: model.layer4,
    "shufflenet_v2_x0_5": lambda model: model.conv5,
    "squeezenet1_1": lambda model: model.features,
    "vgg11": lambda model: model.features[19],
}


@pytest.mark.parametrize("architecture", LAYERS, indirect=True)
def test_against_captum(architecture):
    captum = pytest.importorskip("captum.attr")
    name, model, inputs = architecture
    classes = torch.tensor([1, 4])
    expected = captum.LayerGradCam(model, LAYERS[name](model)).attribute(inputs, target=classes, relu_attributions=True)
    torch.testing.assert_close(grad_cam(model, inputs, classes), expected[:, 0].detach(), rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize("name", ["swin_t", "vit_b_32"])
def test_tokens_against_the_whole_gradient(name):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, inputs = build(name).eval(), torch.rand(1, 3, 64, 64).repeat(7, 1, 1, 1)
    caught = []

    def keep(_module, _inputs, output):
        output.retain_grad()
        caught.append(output)

    layer = model.norm if name == "swin_t" else model.encoder.layers[-1].ln_1
    handle = layer.register_forward_hook(keep)
    model(inputs).diagonal().sum().backward()
    handle.remove()
    maps = [values.flatten(1, -2)[:, -4:] for values in (caught[0].detach(), caught[0].grad)]  # (7, 4, c)
    expected = (maps[0] * maps[1].mean(1, keepdim=True)).sum(2).clamp(min=0).view(7, 2, 2)
    cams = grad_cam(model, inputs, torch.arange(7))
    torch.testing.assert_close(cams, expected)
    assert cams.max() > 0


def test_efficientnet_lite():
    package = pytest.importorskip("efficientnet_lite_pytorch")
    model = package.EfficientNet.from_name("efficientnet-lite0").eval()
    cams = grad_cam(model, torch.rand(2, 3, 64, 64), torch.tensor([0, 999]))
    assert cams.shape == (2, 2, 2)
    expected = []
    handle = model._swish.register_forward_hook(lambda _module, _inputs, output: expected.append(output))
    model(torch.rand(1, 3, 64, 64))
    handle.remove()
    assert expected[-1].shape == (1, 1280, 2, 2)


def test_tokens_with_and_without_a_class_token():
    tokens = torch.rand(2, 9, 4, generator=torch.Generator().manual_seed(0))

    class Head(nn.Module):
        def __init__(self, extra):
            super().__init__()
            self.inner, self.extra = nn.Identity(), extra

        def forward(self, inputs):
            joined = torch.cat([5 * torch.ones(len(inputs), self.extra, 4), tokens[: len(inputs)]], 1)
            return (self.inner(joined) * torch.tensor([1.0, 2, -3, 1])).mean(1)

    images, classes = torch.rand(2, 3, 2, 2), torch.tensor([1, 3])
    for extra in (0, 1):
        cams = grad_cam(Head(extra), images, classes, "inner")
        expected = torch.stack([2 * tokens[0, :, 1], tokens[1, :, 3]]).reshape(2, 3, 3) / (9 + extra)
        torch.testing.assert_close(cams, expected)
    with pytest.raises(ValueError, match="expected a square number of tokens, or one more with a class token, got 11"):
        grad_cam(Head(2), images, classes, "inner")


def test_what_cannot_be_done_says_so():
    model = small_network()
    with pytest.raises(ValueError, match=r"no default layer is known for .*, only for AlexNet"):
        grad_cam(model, INPUTS, CLASSES)
    with pytest.raises(ValueError, match="expected the name of a layer of Sequential, got 'layer4'"):
        grad_cam(model, INPUTS, CLASSES, "layer4")
    with pytest.raises(ValueError, match="expected a layer whose output is maps or tokens"):
        grad_cam(model, INPUTS, CLASSES, "6")
    with pytest.raises(ValueError, match="expected a model that runs the chosen layer"):
        grad_cam(model, INPUTS, CLASSES, nn.ReLU())
    with pytest.raises(ValueError, match="expected classes below 6, got 6"):
        grad_cam(model, INPUTS, CLASSES + 1, "3")


@pytest.mark.parametrize("function", [predicted_attention_similarity, true_attention_similarity])
def test_similarity_by_hand(function):
    cams = torch.tensor([[1.0, 0, 0, 0], [1, 1, 0, 0], [2, 2, 2, 2], [1, 0, 0, 0], [1, 0, 0, 0]]).view(5, 2, 2)
    adv_cams = torch.tensor([[0.0, 1, 0, 0], [1, 0, 0, 0], [9, 9, 9, 9], [0, 0, 0, 0], [1, 0, 0, 0]]).view(5, 2, 2)
    logits, labels = torch.tensor([[1.0, 0]] * 5), torch.tensor([0, 0, 0, 0, 1])
    values = function(cams, adv_cams, logits, labels, reduction="none")
    assert values.tolist() == pytest.approx([0, math.sqrt(0.5), 1, math.nan, math.nan], nan_ok=True)
    assert function(cams, adv_cams, logits, labels) == pytest.approx((math.sqrt(0.5) + 1) / 3)
    with pytest.raises(ValueError, match="to hold values between 0"):
        function(-cams, adv_cams, logits, labels)


def test_small_maps_keep_their_direction():
    cams = torch.rand(4, 7, 7, generator=torch.Generator().manual_seed(0))
    logits, labels = torch.tensor([[1.0, 0]] * 4), torch.zeros(4, dtype=torch.int64)
    similarity = true_attention_similarity(cams * 1e-30, cams * 1e-20, logits, labels, reduction="none")
    assert similarity.tolist() == pytest.approx([1] * 4)
    other = cams.flip(0)
    expected = [
        np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b)
        for a, b in zip(cams.flatten(1).numpy(), other.flatten(1).numpy(), strict=True)
    ]
    assert true_attention_similarity(cams, other, logits, labels, reduction="none").tolist() == pytest.approx(expected)
