"""Foolbox: its rows, and the one call that runs any of them."""

import inspect
from typing import Any

from torch import Tensor, nn

from .attack import Implementation, ThreatModel

_ATTACKS = "foolbox.attacks:"
_ITERATED = {"steps": "steps", "step_size": "abs_stepsize", "random_start": "random_start"}

ROWS: tuple[Implementation, ...] = (
    Implementation("fgsm", "foolbox", {"linf": _ATTACKS + "LinfFastGradientAttack"}),
    Implementation(
        "bim",
        "foolbox",
        {
            "linf": _ATTACKS + "LinfBasicIterativeAttack",
            "l2": _ATTACKS + "L2BasicIterativeAttack",
            "l1": _ATTACKS + "L1BasicIterativeAttack",
        },
        _ITERATED,
        targeted="yes",
        random=("torch",),
    ),
    Implementation(
        "pgd",
        "foolbox",
        {
            "linf": _ATTACKS + "LinfProjectedGradientDescentAttack",
            "l2": _ATTACKS + "L2ProjectedGradientDescentAttack",
            "l1": _ATTACKS + "L1ProjectedGradientDescentAttack",
        },
        _ITERATED,
        targeted="yes",
        random=("torch",),
    ),
    Implementation(
        "deepfool",
        "foolbox",
        {"l2": _ATTACKS + "L2DeepFoolAttack", "linf": _ATTACKS + "LinfDeepFoolAttack"},
        {"steps": "steps", "overshoot": "overshoot", "candidates": "candidates"},
    ),
    Implementation(
        "hopskipjump",
        "foolbox",
        {"l2": _ATTACKS + "HopSkipJumpAttack", "linf": _ATTACKS + "HopSkipJumpAttack"},
        {
            "steps": "steps",
            "initial_evaluations": "initial_gradient_eval_steps",
            "max_evaluations": "max_gradient_eval_steps",
            "starting_points": "starting_points",
        },
        targeted="yes",
        random=("torch",),
        alone=True,
        repairs=("one image per call: it normalises over the batch",),
        findings=("B18",),
    ),
)


def run(
    attack_class: Any,
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    targets: Tensor | None = None,
    **kwargs: Any,
) -> Tensor:
    """Run a Foolbox attack class.

    Args:
        attack_class: a subclass of `foolbox.attacks.base.Attack`.
        model: maps images to logits.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: ground truth, shape (n,).
        threat_model: its epsilon goes to the attacks with a fixed budget; the others look for the smallest change.
        targets: target classes, shape (n,), if targeted.
        **kwargs: in Foolbox's words; those that the constructor does not take go to the call.

    Returns:
        The images that Foolbox returns, shape (n, C, H, W); for a fixed budget, clipped to the ball by Foolbox.
    """
    from foolbox.attacks.base import FixedEpsilonAttack, FlexibleDistanceMinimizationAttack, MinimizationAttack
    from foolbox.criteria import Misclassification, TargetedMisclassification
    from foolbox.models import PyTorchModel

    wrapped = PyTorchModel(model, bounds=(0, 1), device=inputs.device)
    criterion = Misclassification(labels) if targets is None else TargetedMisclassification(targets)
    taken = inspect.signature(attack_class.__init__).parameters
    constraint = {"constraint": threat_model.norm} if "constraint" in taken else {}
    attack = attack_class(**constraint, **{word: value for word, value in kwargs.items() if word in taken})
    rest = {word: value for word, value in kwargs.items() if word not in taken}
    if issubclass(attack_class, FixedEpsilonAttack):
        rest["epsilons"] = threat_model.epsilon
    elif issubclass(attack_class, (MinimizationAttack, FlexibleDistanceMinimizationAttack)):
        rest["epsilons"] = None
    _, clipped, _ = attack(wrapped, inputs, criterion, **rest)
    return clipped
