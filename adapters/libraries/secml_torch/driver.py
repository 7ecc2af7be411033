"""Driver that calls the attacks that SecML-Torch implements itself."""

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from ...threat_model import ThreatModel
from .attacks import REQUIRED

# Arguments that a class requires without a default.
_REQUIRED: Mapping[str, Any] = {
    "num_steps": REQUIRED["steps"],
    "max_step_size": REQUIRED["learning_rate"],
    "random_start": REQUIRED["random_start"],
}


def run(
    attack_class: Any,
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    targets: Tensor | None = None,
    **kwargs: Any,
) -> Tensor:
    """Run an attack that SecML-Torch implements itself.

    Args:
        attack_class: `PGDNative`, `FMNNative` or `DDNNative`, or a subclass.
        model: maps images to logits.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: true classes, shape (n,).
        threat_model: the norm and the radius are passed if the class accepts them.
        targets: target classes, shape (n,), if targeted.
        **kwargs: arguments by SecML-Torch's names.

    Returns:
        The images that SecML-Torch returns, on the CPU, shape (n, C, H, W).

    Raises:
        ValueError: if the class does not accept an argument.
    """
    from .native_attacks import DeviceBridgingClassifier

    taken = inspect.signature(attack_class.__init__).parameters
    if unknown := sorted(set(kwargs) - set(taken)):
        raise ValueError(f"{attack_class.__name__} does not have these parameters: {', '.join(unknown)}")
    usual = {
        "perturbation_model": threat_model.norm,
        "epsilon": threat_model.epsilon,
        "y_target": None if targets is None else targets.cpu(),
        **_REQUIRED,
    }
    words = {word: value for word, value in usual.items() if word in taken} | kwargs
    if "step_size" in taken and "step_size" not in words:
        words["step_size"] = 2.5 * words["epsilon"] / words["num_steps"]
    # On the CPU, wherever the model is: it stores losses and distances there, and compares them with the images.
    batch = DataLoader(TensorDataset(inputs.cpu(), labels.cpu()), batch_size=len(inputs))
    ((returned, _),) = attack_class(**words)(DeviceBridgingClassifier(model), batch, stream=True)
    return returned
