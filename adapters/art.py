"""The Adversarial Robustness Toolbox (ART): its rows, and the one call that runs any of them."""

import inspect
import math
from typing import Any

import torch
from torch import Tensor, nn

from .attack import Implementation, ThreatModel

_EVASION = "art.attacks.evasion:"
_ITERATED = {"steps": "max_iter", "step_size": "eps_step"}
_CLIP_FIRST = ("clip-before-project",)

ROWS: tuple[Implementation, ...] = (
    Implementation("fgsm", "art", {"linf": _EVASION + "FastGradientMethod"}, targeted="yes"),
    Implementation("bim", "art", {"linf": _EVASION + "BasicIterativeMethod"}, _ITERATED, targeted="yes"),
    Implementation(
        "pgd",
        "art",
        dict.fromkeys(("linf", "l2", "l1"), _EVASION + "ProjectedGradientDescent"),
        {**_ITERATED, "random_start": "num_random_init"},
        targeted="yes",
        random=("numpy",),
        findings=("B2", "clip-before-project"),
    ),
    Implementation(
        "deepfool",
        "art",
        {"l2": _EVASION + "DeepFool"},
        {"steps": "max_iter", "overshoot": "epsilon", "candidates": "nb_grads"},
        alone=True,
        findings=("B6",),
    ),
    Implementation(
        "hopskipjump",
        "art",
        dict.fromkeys(("l2", "linf"), _EVASION + "HopSkipJump"),
        {
            "steps": "max_iter",
            "initial_evaluations": "init_eval",
            "max_evaluations": "max_eval",
            "starting_points": "x_adv_init",
        },
        targeted="yes",
        random=("numpy",),
        alone=True,
        failure="input",
        repairs=("given a starting point: its own draw is unseeded", "model input cast to the model's dtype"),
        findings=("before-projection",),
    ),
)

_NORMS = {"linf": math.inf, "l2": 2, "l1": 1, "l0": 0}


def run(
    attack_class: Any,
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    targets: Tensor | None = None,
    **kwargs: Any,
) -> Tensor:
    """Run an ART attack class.

    Args:
        attack_class: a subclass of `art.attacks.EvasionAttack`.
        model: maps images to logits (or probabilities) and has `num_classes`.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: ground truth, shape (n,).
        threat_model: norm, epsilon and mode, passed where the class takes them.
        targets: target classes, shape (n,), if targeted.
        **kwargs: in ART's words; those that the constructor does not take go to `generate`.

    Returns:
        The images that ART returns, as a CPU tensor of shape (n, C, H, W).
    """
    from art.estimators.classification import PyTorchClassifier

    estimator = PyTorchClassifier(
        model=model,
        loss=nn.CrossEntropyLoss(),
        input_shape=tuple(inputs.shape[1:]),
        nb_classes=int(getattr(model, "num_classes")),  # noqa: B009 - the type checker knows only nn.Module
        clip_values=(0.0, 1.0),
        device_type="gpu" if inputs.is_cuda else "cpu",
    )
    taken = inspect.signature(attack_class.__init__).parameters
    usual = {
        "norm": _NORMS.get(threat_model.norm),
        "eps": threat_model.epsilon,
        "targeted": threat_model.targeted,
        "batch_size": len(inputs),
        "verbose": False,
    }
    usual = {word: value for word, value in usual.items() if word in taken and value is not None}
    own = {word: int(value) if isinstance(value, bool) else value for word, value in kwargs.items()}
    own = {word: value.cpu().numpy() if isinstance(value, Tensor) else value for word, value in own.items()}
    attack = attack_class(estimator, **usual | {word: value for word, value in own.items() if word in taken})
    wanted = labels if targets is None else targets
    rest = {word: value for word, value in own.items() if word not in taken}
    return torch.from_numpy(attack.generate(x=inputs.cpu().numpy(), y=wanted.cpu().numpy(), **rest))
