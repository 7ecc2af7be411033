"""torchattack's attacks on the parts of a network: they reach them, refuse other networks, and leave no trace."""

import copy
from typing import Any

import pytest
import timm
import torch
import torchattack
import torchvision
from torch import Tensor, nn

from davylamp.adapters import IMPLEMENTATIONS, Classifier, ThreatModel, run_attack
from davylamp.adapters.libraries.torchattack.structures import _as_before, _residual
from davylamp.errors import AttackFailed, Unsupported

STEPS = {"steps": 3, "step_size": 0.03}
RESIDUAL, ATTENTIVE = ("sgm", "bpa"), ("tgr", "pna-patchout", "vdc", "att")


def attack(name: str, case: Any, module: nn.Module | None = None) -> Any:
    words = (Classifier(module or case.module), case.inputs, case.labels, ThreatModel("linf", 0.1))
    return run_attack(f"torchattack:{name}", *words, **STEPS)


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
