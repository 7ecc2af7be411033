"""torchattack's attacks on layers and parts of networks: they reach them, refuse other networks, leave no trace."""

import copy
from typing import Any

import pytest
import timm
import torch
import torchattack
import torchvision
from torch import Tensor, nn
from torchvision.models import vgg16

from davylamp.adapters import IMPLEMENTATIONS, Classifier, ThreatModel, run_attack
from davylamp.adapters.libraries.torchattack.features import tapped
from davylamp.adapters.libraries.torchattack.structures import _as_before, _residual
from davylamp.errors import AttackFailed, Unsupported

STEPS = {"steps": 3, "step_size": 0.03}


LAYERED = ("fia", "naa", "danaa", "dr", "ilpd", "bfa")


def attack(name: str, case: Any, module: nn.Module | None = None, **parameters: Any) -> Any:
    words = (Classifier(module or case.module), case.inputs, case.labels, ThreatModel("linf", 0.1))
    return run_attack(f"torchattack:{name}", *words, **STEPS, **parameters)


def hooks(module: nn.Module) -> int:
    return sum(len(part._forward_hooks) + len(part._backward_hooks) for part in module.modules())


def test_the_middle_convolution_of_vgg_16_is_the_papers():
    """conv3_3, the seventh of thirteen."""
    with torch.device("meta"):
        network = vgg16()
    with tapped(network, network, ""):
        assert [name for name, part in network.named_modules() if part._forward_hooks] == ["features.14"]
    assert not hooks(network)


@pytest.mark.parametrize("name", LAYERED)
def test_the_default_layer_can_be_named_and_another_gives_other_images(digits, name):
    case = digits.first(2)
    default, named, other = (attack(name, case, **words).adv_inputs for words in ({}, {"layer": "0"}, {"layer": "2"}))
    assert torch.equal(default, named)
    assert not torch.equal(default, other)


@pytest.mark.parametrize("name", [*LAYERED, "fda"])
def test_the_model_is_as_before_also_if_the_attack_fails(digits, name, monkeypatch):
    case = digits.first(1)
    assert "model-changed" not in attack(name, case).violations[0]
    assert not hooks(case.module)
    monkeypatch.setattr(torch.Tensor, "backward", lambda *_, **__: 1 / 0)
    with pytest.raises(AttackFailed):
        attack(name, case)
    assert not hooks(case.module)


def test_a_layer_that_the_next_one_writes_over_is_read_before(digits):
    layers = list(digits.module)
    over = nn.Sequential(layers[0], nn.ReLU(inplace=True), layers[2], nn.ReLU(inplace=True), *layers[4:])
    for name in ("fia", "ilpd"):
        images = [attack(name, digits.first(2), module, layer="2").adv_inputs for module in (digits.module, over)]
        assert torch.equal(*images)


def test_of_a_model_without_convolutions_the_images_are_the_layer(linear):
    with tapped(linear.module, linear.module, "") as reached:
        read = []
        reached.tap.register_forward_hook(lambda _, given, output: read.append((given[0], output)))
        assert torch.equal(reached(linear.inputs), linear.module(linear.inputs))
    assert torch.equal(read[0][1], linear.inputs)


def test_an_unknown_layer_is_refused_with_some_that_there_are(digits):
    with pytest.raises(Unsupported, match=r"needs a layer of the model \(0, 1, 2, 3, 4, \.\.\."):
        attack("fia", digits.first(1), layer="layer2")


def test_features_without_a_relu_give_fda_nothing_to_disrupt(linear):
    words = (linear.classifier, linear.inputs, linear.labels, ThreatModel("linf", 1e-6))
    result = run_attack("torchattack:fda", *words, **STEPS)
    assert all("no-gradient" in kinds for kinds in result.violations)
    assert not result.robust.any()


RESIDUAL, ATTENTIVE = ("sgm", "bpa"), ("tgr", "pna-patchout", "vdc", "att")


def case_of(name: str, request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("residual" if name in RESIDUAL else "transformer")


def parts(network: nn.Module) -> list[Any]:
    return [
        (name, type(part), len(part._backward_hooks), len(part._forward_hooks), part._is_full_backward_hook)
        for name, part in network.named_modules()
    ]


@pytest.mark.parametrize("name", [*RESIDUAL, *ATTENTIVE])
def test_what_is_hooked_changes_the_attack_and_nothing_else(name, request, monkeypatch):
    case = case_of(name, request)
    before, fused = parts(case.module), [getattr(part, "fused_attn", None) for part in case.module.modules()]
    result, plain = attack(name, case), attack("mi-fgsm", case)
    assert ((result.adv_inputs - plain.adv_inputs).abs() > 1e-3).float().mean() > 0.05
    assert not any(result.violations)
    monkeypatch.setattr(torch.Tensor, "backward", lambda *_, **__: 1 / 0)
    with pytest.raises(AttackFailed):
        attack(name, case)
    assert parts(case.module) == before
    assert [getattr(part, "fused_attn", None) for part in case.module.modules()] == fused


class FlatAtFirst(nn.Module):
    """Logits whose gradient is zero in the first so many passes that have one."""

    def __init__(self, flat: int = 0):
        super().__init__()
        self.flat, self.passes = flat, 0

    def forward(self, logits: Tensor) -> Tensor:
        self.passes += logits.requires_grad
        return logits if not logits.requires_grad or self.passes > self.flat else logits.detach() + 0 * logits


@pytest.mark.parametrize("name", [*RESIDUAL, *ATTENTIVE])
def test_a_flat_gradient_stops_an_image_for_good(name, request):
    """nan-momentum: flat in the first of three steps."""
    case = case_of(name, request)
    case, steep = case.first(1), FlatAtFirst()
    assert not torch.equal(attack(name, case, nn.Sequential(case.module, steep)).adv_inputs, case.inputs)
    flat = FlatAtFirst(steep.passes - 2 * (steep.passes // 3))  # ATT asks once before its first step
    stopped = attack(name, case, nn.Sequential(case.module, flat))
    assert "nan-momentum" in IMPLEMENTATIONS[f"torchattack:{name}"].findings
    assert torch.equal(stopped.adv_inputs, case.inputs)


@pytest.mark.parametrize("name", [*RESIDUAL, *ATTENTIVE])
def test_another_network_is_refused(digits, name):
    wanted = (
        "a ResNet of torchvision" if name in RESIDUAL else "a VisionTransformer of timm with 12 blocks, on 224 pixels"
    )
    with pytest.raises(Unsupported, match=f"needs {wanted}.*, got Sequential"):
        attack(name, digits.first(1))


def test_a_transformer_of_another_size_is_refused(transformer):
    small = timm.create_model("vit_base_patch16_224", embed_dim=24, num_heads=2, num_classes=10, depth=6)
    case = transformer._replace(labels=small.eval()(transformer.inputs).argmax(1))
    with pytest.raises(Unsupported, match="with 12 blocks"):
        attack("tgr", case, small)


def test_in_one_call_timms_attention_has_nothing_to_hook(transformer):
    """Why it runs step by step: the attacks' hooks on attention are never called otherwise."""
    called = []
    for fused in (True, False):
        network = copy.deepcopy(transformer.module)
        for block in network.blocks:
            block.attn.fused_attn = fused
            block.attn.attn_drop.register_forward_hook(lambda *_, fused=fused: called.append(fused))
        network(transformer.inputs)
    assert called == [False] * 12


@pytest.mark.filterwarnings("ignore:Using a non-full backward hook:FutureWarning")
def test_the_library_leaves_its_hooks(residual):
    """Why they are taken out: after SGM, the gradient of the network is another one."""
    network = copy.deepcopy(residual.module)
    gradients = []
    for _ in range(2):
        inputs = residual.inputs.clone().requires_grad_()
        gradients.append(torch.autograd.grad(network(inputs).logsumexp(1).sum(), inputs)[0])
        torchattack.SGM(network, hook_cfg="resnet18")
    assert (gradients[0] - gradients[1]).abs().max() > 0.1 * gradients[0].abs().max()


def test_a_network_inside_a_model_counts_and_so_does_a_densenet(residual):
    wrapped = nn.Sequential(nn.Identity(), residual.module)
    same, alone = (attack("bpa", residual, module).adv_inputs for module in (wrapped, None))
    assert torch.equal(same, alone)
    with torch.device("meta"):
        dense, deep = torchvision.models.densenet121(), torchvision.models.resnet50()
    assert _residual(nn.Sequential(dense), "SGM") == (dense, "densenet121")
    assert _residual(deep, "SGM") == (deep, "resnet50")


def test_what_was_hooked_before_stays_hooked():
    network = nn.Sequential(nn.ReLU())
    network[0].register_forward_hook(print)
    with _as_before(network):
        network[0].register_backward_hook(print)
        network[0] = nn.Identity()
    assert isinstance(network[0], nn.ReLU)
    assert list(network[0]._forward_hooks.values()) == [print]
    assert not network[0]._backward_hooks
    network[0].register_full_backward_hook(print)  # as if there never had been one of the other kind
