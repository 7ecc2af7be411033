"""Driver of users' attacks. If an attack's class extends a class of a library, the driver of this library is used."""

import copy
import inspect
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ...threat_model import ThreatModel
from ...user_code_guard import stdout_to_stderr
from .isolated_attack import IsolatedAttack
from .user_attack import UserAttack


class _Call(NamedTuple):
    model: nn.Module
    inputs: Tensor
    labels: Tensor
    threat_model: ThreatModel
    targets: Tensor | None
    words: Mapping[str, Any]


def run(
    given: UserAttack | IsolatedAttack,
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    targets: Tensor | None = None,
    **kwargs: Any,
) -> Tensor:
    """Run a user's attack.

    Args:
        given: the attack.
        model: maps images to logits and has the attribute `num_classes`.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: true classes, shape (n,).
        threat_model: the norm, the radius and `targeted` are passed if the attack has arguments for them.
        targets: target classes, shape (n,), if targeted.
        **kwargs: arguments by the attack's names.

    Returns:
        The images that the attack returns, shape (n, C, H, W).

    Raises:
        TypeError: if the attack does not return images.
    """
    if isinstance(given, IsolatedAttack):
        return given.run(model, (inputs, labels, threat_model, targets), kwargs)
    # What it prints is for the user to see, but standard output is our caller's.
    with given.surroundings, redirect_stdout(sys.stderr), stdout_to_stderr():
        returned = _CALLS[given.form](given, _Call(model, inputs, labels, threat_model, targets, kwargs))
    if isinstance(returned, np.ndarray) and returned.dtype != object:
        returned = torch.from_numpy(np.ascontiguousarray(returned))
    if not isinstance(returned, Tensor):
        raise TypeError(f"expected {given.where} to return the adversarial images, got {_describe(returned)}")
    return returned


def _describe(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, (tuple, list)):
        return f"{kind} of {', '.join(type(each).__name__ for each in value[:3])}{', ...' if len(value) > 3 else ''}"
    return f"{kind} of {value.dtype}" if hasattr(value, "dtype") else kind


def _call_function(given: UserAttack, call: _Call) -> Any:
    """Call a user's function or object. A class is constructed first, with those arguments that it accepts."""
    roles = _roles(call.threat_model, call.targets)
    attack, words = given.thing, {**roles, **call.words}
    if isinstance(attack, type):
        setup = given.signature
        attack = attack(**{word: value for word, value in words.items() if word in setup})
        words = {word: value for word, value in words.items() if word not in setup or word in roles}
    taken = given.call_signature
    return attack(
        call.model, call.inputs, call.labels, **{word: value for word, value in words.items() if word in taken}
    )


def _roles(threat_model: ThreatModel, targets: Tensor | None) -> dict[str, Any]:
    """Return the values of the threat model and the targets, by all argument names that functions use for them."""
    from .as_implementation import RADIUS

    words: dict[str, Any] = dict.fromkeys(RADIUS, threat_model.radius)
    return {**words, "norm": threat_model.norm, "targets": targets, "targeted": targets is not None,
            "threat_model": threat_model}  # fmt: skip


def _call_torchattacks(given: UserAttack, call: _Call) -> Any:
    from ..torchattacks.driver import run as run_class

    attack, words = given.thing, dict(call.words)
    if not isinstance(attack, type):
        attack = _Bound(attack)
        words |= dict.fromkeys({"epsilon"} & set(attack.settable), call.threat_model.radius)
    elif "epsilon" in given.signature:
        words["epsilon"] = call.threat_model.radius
    return run_class(attack, *call[:5], **words)


class _Bound:
    """Makes a user's torchattacks instance callable like a class: a call with a model returns a copy for this model."""

    def __init__(self, instance: Any):
        self.instance, self.__name__ = instance, type(instance).__name__

    @property
    def settable(self) -> dict[str, inspect.Parameter]:
        """Attributes of the instance whose values a call can override, with their current values."""
        kind = inspect.Parameter.KEYWORD_ONLY
        return {
            word: inspect.Parameter(word, kind, default=value)
            for word, value in vars(self.instance).items()
            if word.isidentifier() and not word.startswith("_") and word not in ("model", "device", "attack")
        }

    def __call__(self, model: nn.Module, **words: Any) -> Any:
        bound = _rebind(self.instance, model)
        for word, value in words.items():
            setattr(bound, word, value)
        return bound


def _rebind(instance: Any, model: nn.Module) -> Any:
    from torchattacks.attack import Attack

    bound = copy.copy(instance)
    for word, value in list(vars(bound).items()):
        if isinstance(value, Attack):
            vars(bound)[word] = _rebind(value, model)
        elif isinstance(value, (list, tuple)) and any(isinstance(each, Attack) for each in value):
            vars(bound)[word] = [_rebind(each, model) if isinstance(each, Attack) else each for each in value]
        elif isinstance(value, dict):
            inner = {key: _rebind(each, model) if isinstance(each, Attack) else each for key, each in value.items()}
            vars(bound)[word] = type(value)(inner)
    vars(bound)["model"] = model
    vars(bound)["device"] = next((tensor.device for tensor in model.parameters()), torch.device("cpu"))
    return bound


def _call_foolbox(given: UserAttack, call: _Call) -> Any:
    from ..foolbox.driver import run as run_class

    return run_class(given.thing, *call[:5], **call.words)


def _call_art(given: UserAttack, call: _Call) -> Any:
    from ..art.driver import run as run_class

    return run_class(given.thing, *call[:5], **call.words)


_CALLS = {
    "function": _call_function,
    "torchattacks": _call_torchattacks,
    "foolbox": _call_foolbox,
    "art": _call_art,
}
