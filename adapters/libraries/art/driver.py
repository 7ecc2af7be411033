"""Driver that calls the attack classes of the Adversarial Robustness Toolbox (ART)."""

import copy
import inspect
import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...attack import Implementation, RunSetting
from ...threat_model import ThreatModel

_NORMS = {"linf": math.inf, "l2": 2, "l1": 1, "l0": 0}
_OF_GENERATE = ("x_adv_init", "starting_points")
_ONE_HOT = frozenset({"SimBA", "TargetedUniversalPerturbation"})  # the only ones that do not accept indices
_MOST_GENES = 20_000  # differential evolution keeps as many candidates as there are components


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
        attack_class: a subclass of `art.attacks.EvasionAttack`, or an instance, which is copied.
        model: maps images to logits (or probabilities) and has the attribute `num_classes`.
        inputs: clean images in [0, 1], shape (n, C, H, W).
        labels: true classes, shape (n,).
        threat_model: the norm, the radius and `targeted` are passed if the class accepts them.
        targets: target classes, shape (n,), if targeted.
        **kwargs: arguments by ART's names, in the units of the canonical parameters. Starting points are passed to the
            method `generate`.

    Returns:
        The images that ART returns, as a CPU tensor of shape (n, C, H, W).

    Raises:
        ValueError: if the class does not support a parameter.
    """
    kind = attack_class if isinstance(attack_class, type) else type(attack_class)
    names = [ancestor.__name__ for ancestor in kind.__mro__]
    convert = next((_UNITS[name] for name in names if name in _UNITS), None)
    words = {word: value.cpu().numpy() if isinstance(value, Tensor) else value for word, value in kwargs.items()}
    words = convert(words, inputs, threat_model) if convert else words
    rest = {word: words.pop(word) for word in _OF_GENERATE if word in words}
    clean, wanted = inputs.cpu().numpy().copy(), (labels if targets is None else targets).cpu().numpy()
    # ART computes on the current GPU, whichever GPU the model is on.
    with torch.cuda.device(inputs.device) if inputs.is_cuda else nullcontext():
        attack = _build(attack_class, model, inputs, threat_model, words)
        # ART's classes accept indices or one-hot labels; subclasses of users often need one-hot labels for
        # `loss_gradient`.
        if _ONE_HOT.intersection(names) or not kind.generate.__module__.startswith("art."):
            wanted = np.eye(attack.estimator.nb_classes, dtype=np.float32)[wanted]
        returned = torch.from_numpy(attack.generate(x=clean, y=wanted, **rest))
    if "PixelThreshold" in names:
        unchanged = (returned - inputs.cpu()).abs() < 1e-6
        returned = inputs.cpu().where(unchanged, returned)
    return returned


def refuses(row: Implementation, setting: RunSetting) -> str:
    """Return the reason why a class cannot run in a setting, see `Library.refuses`. "" if it can run."""
    channels, epsilon = setting.shape[0], setting.threat_model.epsilon or 0
    shift = setting.parameters.get("max_translation", 0)
    size = math.prod(setting.shape)
    reasons = (
        (
            "one-pixel",
            epsilon < channels,
            f"needs epsilon >= {channels}, because it changes all channels of a pixel, got {epsilon:g}",
        ),
        ("jsma", epsilon < 2, f"needs epsilon >= 2, because it changes components in pairs, got {epsilon:g}"),
        ("sign-opt", setting.classes == 2, "needs three classes or more"),
        ("threshold", size > _MOST_GENES, f"needs images of at most {_MOST_GENES} components, got {size}"),
        ("threshold", epsilon * 255 <= 1, f"needs epsilon above 1/255, got {epsilon:.4g}"),
        (
            "spatial",
            shift > setting.shape[1],
            f"needs max_translation <= {setting.shape[1]} pixels, got {shift:g}",
        ),
    )
    return next((why for attack, is_so, why in reasons if attack == row.attack and is_so), "")


def fit_universal(
    attack_class: Any,
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    targets: Tensor | None = None,
    **kwargs: Any,
) -> Mapping[str, Tensor]:
    """Fit a universal attack of ART on images, and return {"perturbation": perturbation of shape (C, H, W)}."""
    wanted = (labels if targets is None else targets).cpu().numpy()
    words = _UNITS[attack_class.__name__](kwargs, inputs, threat_model)
    with torch.cuda.device(inputs.device) if inputs.is_cuda else nullcontext():
        attack = _build(attack_class, model, inputs, threat_model, words)
        if attack_class.__name__ in _ONE_HOT:
            wanted = np.eye(attack.estimator.nb_classes, dtype=np.float32)[wanted]
        attack.generate(x=inputs.cpu().numpy().copy(), y=wanted)
    return {"perturbation": torch.from_numpy(attack.noise)[0]}


def _build(
    attack_class: Any, model: nn.Module, inputs: Tensor, threat_model: ThreatModel, words: dict[str, Any]
) -> Any:
    """Build the attack with a new ART estimator of the model. The threat model is passed if the class accepts it.

    Raises:
        ValueError: if the class does not accept an argument.
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
    kind = attack_class if isinstance(attack_class, type) else type(attack_class)
    taken = inspect.signature(kind.__init__).parameters
    usual = {
        "norm": _NORMS.get(threat_model.norm),
        "eps": threat_model.epsilon,
        "targeted": threat_model.targeted,
        # For one image ART's default holds: decision-based attacks query many candidates per call.
        "batch_size": len(inputs) if len(inputs) > 1 else None,
        "verbose": False,
    }
    usual = {word: value for word, value in usual.items() if word in taken and value is not None}
    if threat_model.per_image_step_radius is not None:  # ART wants the steps in the same shape
        radii = threat_model.exact_radius.view(-1, 1, 1, 1).cpu().numpy()
        step = words.get("eps_step", taken["eps_step"].default)
        words = words | {"eps": radii, "eps_step": np.broadcast_to(step, radii.shape)}
    steps = words.pop("max_iter", None) if kind.__name__ == "AutoAttack" else None
    unknown = sorted(set(words) - set(taken))
    if unknown:
        raise ValueError(f"{kind.__name__} does not have these parameters: {', '.join(unknown)}")
    if kind is attack_class:
        attack = kind(estimator, **usual | words)
    else:
        attack = _rebind(attack_class, estimator)
        attack.set_params(**{word: value for word, value in (usual | words).items() if word in attack.attack_params})
    for inner in getattr(attack, "attacks", ()):
        inner.verbose = False
        if steps is not None and hasattr(inner, "loss_type"):
            inner.max_iter = steps
    return attack


def _rebind(instance: Any, estimator: Any) -> Any:
    attack = copy.copy(instance)
    attack._estimator = estimator  # ART has no public way to replace the estimator
    if isinstance(inner := getattr(attack, "attacks", None), (list, tuple)):
        attack.attacks = [_rebind(each, estimator) for each in inner]
    return attack


def _count_of_starts(words: dict[str, Any], *_: Any) -> dict[str, Any]:
    """Convert the number of random starts, which may be a bool, to an int."""
    return words | {word: int(value) for word, value in words.items() if word == "num_random_init"}


def _silently(words: dict[str, Any], *_: Any) -> dict[str, Any]:
    """Disable the progress bar of the inner attack of a universal perturbation."""
    return {"attacker_params": {"verbose": False}, **words}


def _towards(words: dict[str, Any], _: Tensor, threat_model: ThreatModel) -> dict[str, Any]:
    """Make the FGSM inside a targeted universal perturbation targeted, and give it the norm of the threat model."""
    inner: dict[str, Any] = {"targeted": True, "norm": _NORMS[threat_model.norm]}
    if "eps_step" in words:
        inner["eps"] = words.pop("eps_step")
    return {"attacker_params": inner, **words}


def _pixels(words: dict[str, Any], inputs: Tensor, threat_model: ThreatModel) -> dict[str, Any]:
    """Convert the l0 radius from components to pixels, because the attack changes all channels of a pixel."""
    return {"th": int(threat_model.epsilon or 0) // inputs.shape[1], **words}


def _levels(words: dict[str, Any], _: Tensor, threat_model: ThreatModel) -> dict[str, Any]:
    """Convert the radius to 8-bit levels. One level is subtracted, because truncation may add one."""
    return {"th": (threat_model.epsilon or 0) * 255 - 1, **words}


def _share_of_features(words: dict[str, Any], inputs: Tensor, threat_model: ThreatModel) -> dict[str, Any]:
    """Convert the l0 radius to a proportion of components. It is reduced, because JSMA changes components in pairs."""
    return {"gamma": (int(threat_model.epsilon or 0) - 1.5) / inputs[0].numel(), **words}


def _percent(words: dict[str, Any], inputs: Tensor, _: Any) -> dict[str, Any]:
    """Convert a shift in pixels to a percentage of the image's height."""
    if "max_translation" not in words:
        return words
    return words | {"max_translation": 100 * words["max_translation"] / inputs.shape[2]}


def _rounds(words: dict[str, Any], *_: Any) -> dict[str, Any]:
    """Convert the number of rounds to the largest trade-off constant, which C&W in linf doubles in each round."""
    rounds = words.pop("binary_search_steps", None)
    if rounds is None:
        return words
    return words | {"largest_const": words.get("initial_const", 1e-5) * 2.0**rounds}


def _schedule(words: dict[str, Any], *_: Any) -> dict[str, Any]:
    """Raise GeoDA's query budget to at least 251, because GeoDA fails with less. davylamp's budget still applies."""
    return words | ({"max_iter": max(251, words["max_iter"])} if "max_iter" in words else {})


_UNITS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "FastGradientMethod": _count_of_starts,
    "ProjectedGradientDescent": _count_of_starts,
    "UniversalPerturbation": _silently,
    "TargetedUniversalPerturbation": _towards,
    "PixelAttack": _pixels,
    "ThresholdAttack": _levels,
    "SaliencyMapMethod": _share_of_features,
    "SpatialTransformation": _percent,
    "CarliniLInfMethod": _rounds,
    "GeoDA": _schedule,
}
