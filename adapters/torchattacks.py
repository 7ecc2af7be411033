"""torchattacks: its rows, and the one call that runs any of them."""

import inspect
from typing import Any

from torch import Tensor, nn

from .attack import Implementation, ThreatModel

_ITERATED = {"steps": "steps", "step_size": "alpha"}

ROWS: tuple[Implementation, ...] = (
    Implementation("fgsm", "torchattacks", {"linf": "torchattacks:FGSM"}, targeted="yes"),
    Implementation("bim", "torchattacks", {"linf": "torchattacks:BIM"}, _ITERATED, targeted="yes"),
    Implementation(
        "pgd",
        "torchattacks",
        {"linf": "torchattacks:PGD", "l2": "torchattacks:PGDL2"},
        {**_ITERATED, "random_start": "random_start"},
        targeted="yes",
        random=("torch",),
        findings=("B1", "radius-uniform"),
    ),
    Implementation(
        "deepfool",
        "torchattacks",
        {"l2": "torchattacks:DeepFool"},
        {"steps": "steps", "overshoot": "overshoot"},
        alone=True,
        findings=("one-pixel-increment",),
    ),
)

_NORMS = {"linf": "Linf", "l2": "L2", "l1": "L1"}


def run(
    attack_class: Any,
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    targets: Tensor | None = None,
    **kwargs: Any,
) -> Tensor:
    """Run a torchattacks attack class.

    Args:
        attack_class: a subclass of `torchattacks.Attack`.
        model: maps images to logits.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: ground truth, shape (n,).
        threat_model: norm and epsilon, passed where the class takes them.
        targets: target classes, shape (n,), if targeted.
        **kwargs: in torchattacks' words.

    Returns:
        The images that torchattacks returns, shape (n, C, H, W).
    """
    taken = inspect.signature(attack_class.__init__).parameters
    usual = {"norm": _NORMS.get(threat_model.norm), "eps": threat_model.epsilon}
    usual = {word: value for word, value in usual.items() if word in taken and value is not None}
    attack = attack_class(model, **usual, **kwargs)
    if targets is not None:
        attack.set_mode_targeted_by_function(lambda *_: targets, quiet=True)
    return attack(inputs, labels)
