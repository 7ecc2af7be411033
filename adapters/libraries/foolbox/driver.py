"""Driver that calls the attack classes of Foolbox."""

# pyright: reportPrivateImportUsage=false

import copy
import inspect
from typing import Any

from torch import Tensor, nn

from ...threat_model import ThreatModel

# Arguments that a class requires without a default.
_REQUIRED = {"steps": 10}


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
        attack_class: a subclass of `foolbox.attacks.base.Attack`, or an instance, which is copied.
        model: maps images to logits.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: true classes, shape (n,).
        threat_model: the radius is passed to fixed-budget attacks, and ignored for minimum-norm attacks.
        targets: target classes, shape (n,), if targeted.
        **kwargs: arguments by Foolbox's names. Arguments that the constructor does not accept are passed to the call.

    Returns:
        The images that Foolbox returns, shape (n, C, H, W). The images of fixed-budget attacks are within the radius.
    """
    from foolbox.attacks.base import FixedEpsilonAttack, MinimizationAttack
    from foolbox.criteria import Misclassification, TargetedMisclassification
    from foolbox.models import PyTorchModel

    wrapped = PyTorchModel(model, bounds=(0, 1), device=inputs.device)
    criterion = Misclassification(labels) if targets is None else TargetedMisclassification(targets)
    kind = attack_class if isinstance(attack_class, type) else type(attack_class)
    taken = inspect.signature(kind.__init__).parameters
    words = _by_norm(kind, threat_model, inputs, kwargs)
    if kind is attack_class:
        attack = kind(**{word: value for word, value in words.items() if word in taken})
    else:
        attack = _set_up(attack_class, {word: words[word] for word in kwargs if word in taken})
    rest = {word: value for word, value in words.items() if word not in taken}
    if (
        threat_model.per_image_step_radius is not None and attack.abs_stepsize is None
    ):  # Foolbox would multiply the wrong shapes
        attack.abs_stepsize = attack.rel_stepsize * threat_model.per_image_step_radius
    if issubclass(kind, FixedEpsilonAttack):
        rest["epsilons"] = [threat_model.radius]
    elif issubclass(kind, MinimizationAttack):
        rest["epsilons"] = None
    _, clipped, _ = attack(wrapped, inputs, criterion, **rest)
    return clipped[0] if isinstance(clipped, list) else clipped


def _set_up(instance: Any, words: dict[str, Any]) -> Any:
    attack = copy.copy(instance)
    for word, value in words.items():
        setattr(attack, word, value)
    return attack


def _by_norm(attack_class: Any, threat_model: ThreatModel, inputs: Tensor, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Split the arguments into those of the constructor and those of the call, and add missing ones.

    Arguments are added that follow from the norm, or that the class requires.
    """
    taken = inspect.signature(attack_class.__init__).parameters
    words = dict(kwargs)
    if "constraint" in taken:
        words["constraint"] = threat_model.norm
    if "l2_binary_search" in taken:
        words["l2_binary_search"] = threat_model.norm == "l2"
    if words.get("abs_stepsize") is not None and _moves_components(attack_class):
        power = {"l2": 0.5, "l1": 1.0}[threat_model.norm]
        words["abs_stepsize"] = words["abs_stepsize"] / inputs[0].numel() ** power
    required = {word for word, parameter in taken.items() if parameter.default is inspect.Parameter.empty}
    return {word: value for word, value in _REQUIRED.items() if word in required} | words


def _moves_components(attack_class: Any) -> bool:
    """Whether Foolbox applies the step size to each component, even in l2 and l1, as in its attacks with Adam."""
    from foolbox import attacks

    from .patches import L1AdamIterative, L2AdamIterative

    adam = (attacks.L1AdamProjectedGradientDescentAttack, attacks.L2AdamProjectedGradientDescentAttack)
    return issubclass(attack_class, (*adam, L1AdamIterative, L2AdamIterative))
