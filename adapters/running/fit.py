"""Fits attacks on images, such as universal perturbations and generators, and applies the fitted attacks to images."""

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import AttackFailed, InvalidInput, ModelFailed, Unsupported
from ..attack import Implementation, RunSetting
from ..catalogue.lookup import (
    check_settings,
    load_apply,
    load_call_context,
    load_class,
    load_fit,
    resolve_implementation,
    why_not_on,
)
from ..coercion import read_seed, type_error
from ..models.classifier import Classifier
from ..models.state_guard import StateGuard
from ..threat_model import ThreatModel
from ..torch_state import attack_precision
from ..user_code_guard import name_error
from .judge import UNCHANGED
from .library_call import Images, LibraryOutput, isolated_call
from .precision import check_precision, precision_of
from .queries import QueryCounter
from .requirements import has_gradients
from .sampling import clean_logits

_NAMED = 3  # arrays that a message lists with their shapes
_OF_IMAGES = ("restarts", "max_queries", "batch_size")  # parameters about images that are attacked


@dataclass(frozen=True, eq=False)
class Fitted:
    """Result of fitting an attack, with its cost.

    Args:
        implementation: name of the implementation, such as "art:uap".
        threat_model: norm, epsilon, targeted.
        parameters: canonical parameters of the fit.
        seed: random seed.
        model: name of the model on which the attack was fitted.
        arrays: fitted arrays by name, such as "perturbation", (C, H, W), or the weights of a generator.
        images: number of images used by the fit, which the model classifies correctly. 0 if it needs no images.
        forwards: total number of images passed forward through the model.
        backwards: total number of backward passes.
        seconds: duration of the fit in seconds.
        target: the target class for all images, or None for an untargeted attack.
    """

    implementation: str
    threat_model: ThreatModel
    parameters: Mapping[str, Any]
    seed: int
    model: str
    arrays: Mapping[str, np.ndarray]
    images: int
    forwards: int
    backwards: int
    seconds: float
    target: int | None = None

    @cached_property
    def digest(self) -> str:
        """First 20 hexadecimal digits of a hash of the fitted arrays."""
        content = hashlib.sha256()
        for name, array in sorted(self.arrays.items()):
            content.update(f"{name} {array.dtype} {array.shape};".encode())
            content.update(np.ascontiguousarray(array).tobytes())
        return content.hexdigest()[:20]

    def __repr__(self) -> str:
        learned = ", ".join(f"{name} {array.shape}" for name, array in self.arrays.items())
        if len(self.arrays) > _NAMED:
            learned = f"{sum(array.size for array in self.arrays.values())} weights"
        cost = f"{self.forwards} forward and {self.backwards} backward passes, {self.seconds:.3g} s"
        on = f"on {self.images} images" if self.images else "without images"
        return f"Fitted {self.implementation} on {self.model}, {on}: {learned[:200]}; {cost}; seed {self.seed}"


def fit_attack(
    implementation: Any,
    classifier: Classifier,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    *,
    seed: int = 0,
    target: int | None = None,
    **parameters: Any,
) -> Fitted:
    """Fit an attack on the images that the classifier classifies correctly.

    Args:
        implementation: an implementation that has `fit`, or its name: "art:uap@fixed", "davylamp:gd-uap".
        classifier: the model that the attack is fitted to fool.
        inputs: fit images in [0, 1], shape (N, C, H, W). An attack that is fitted without images uses only their shape.
        labels: true classes, shape (N,).
        threat_model: norm, epsilon, targeted.
        seed: random seed of the whole fit.
        target: the target class for all images, for a targeted threat model. Images of this class are not used. None
            for an untargeted one.
        **parameters: canonical parameters. Parameters that only affect later attacks, such as `max_queries`, are
            ignored.

    Raises:
        Unsupported: if the implementation needs no fit, or does not support the request.
        InvalidInput: if an argument has a wrong value, or the classifier misclassifies every image.
        AttackFailed: if the library crashed. The library's error is the cause (`__cause__`).
    """
    row, seed = resolve_implementation(implementation), read_seed(seed)
    if not row.fit:
        raise Unsupported(f"{row.name} cannot be fitted: it attacks each image separately")
    settings = check_settings(row, threat_model, parameters, None)
    settings = {name: value for name, value in settings.items() if name not in (*_OF_IMAGES, *row.searches)}
    attack_class = load_class(row, threat_model.norm)
    check_single_target(row, threat_model, target)
    inputs = inputs.detach().float()
    with classifier.frozen():
        logits = clean_logits(classifier, inputs, labels)
        if not has_gradients(classifier, inputs):
            raise Unsupported(
                f"fitting {row.name} needs gradients, but {classifier.name} has none; fit it on a surrogate"
            )
        precision = precision_of(row, settings)
        check_precision(precision, classifier, row)
        setting = RunSetting(classifier.model, logits.shape[1], tuple(inputs.shape[1:]), threat_model, settings)
        if why := why_not_on(row, setting):
            raise Unsupported(f"{row.name} {why}")
        right = logits.argmax(1) == labels.to(inputs.device)
        if not (row.data_free or right.any()):
            raise InvalidInput(f"the model classifies none of the {len(labels)} fit images correctly")
        if target is not None:
            right = _other_classes(right, labels.to(inputs.device), target, logits.shape[1])
        few = slice(0, 1) if row.data_free else right
        images = Images(inputs[few], labels.to(inputs.device, torch.long)[few], None).to(classifier.device)
        counter = QueryCounter(
            classifier,
            images.inputs,
            images.labels,
            threat_model,
            order=row.order,
            needs_gradients=True,
            precision=precision,
        )
        words: dict[str, Any] = {row.params[name]: value for name, value in settings.items() if name in row.params}
        words |= dict(row.fixed)
        known = {"seed": seed, "num_classes": counter.num_classes}
        words |= {row.params[name]: value for name, value in known.items() if name in row.params}
        if target is not None:
            words["targets"] = torch.full_like(images.labels, target)

        def learn() -> Mapping[str, Tensor]:
            return load_fit(row)(attack_class, counter, images.inputs.clone(), images.labels, threat_model, **words)

        start = time.perf_counter()
        with attack_precision(precision):
            learned = _learn(row, classifier, learn, seed)
        return Fitted(
            implementation=row.name,
            threat_model=threat_model,
            parameters=settings,
            seed=seed,
            model=classifier.name,
            arrays={name: value.detach().cpu().numpy() for name, value in learned.items()},
            images=0 if row.data_free else len(images.labels),
            forwards=int(counter.forwards.sum()),
            backwards=int(counter.backwards.sum()),
            seconds=time.perf_counter() - start,
            target=target,
        )


def check_single_target(row: Implementation, threat_model: ThreatModel, target: int | None) -> None:
    """Raise an error if a targeted fit has no target class, or an untargeted fit has one.

    Raises:
        InvalidInput: if the attack needs a target class and none is given, or if one is given for an untargeted attack.
    """
    if row.targeted == "only" and (target is None or not threat_model.targeted):
        raise InvalidInput(
            f"{row.name} moves all images to one class; give the index of this class, for example target=3"
        )
    if target is not None and not threat_model.targeted:
        raise InvalidInput(f"expected no target for an untargeted threat model, got class {target}")


def _other_classes(right: Tensor, labels: Tensor, target: int, classes: int) -> Tensor:
    """Remove images of the target class from the images to fit on.

    Args:
        right: images to fit on, as a mask, shape (N,), bool.
        labels: labels of the images, shape (N,).
        target: the target class.
        classes: number of classes.

    Returns:
        The new mask.

    Raises:
        InvalidInput: if there is no such class, or no image remains.
    """
    if not 0 <= target < classes:
        raise InvalidInput(f"expected a target class from 0 to {classes - 1}, got {target}")
    others = right & (labels != target)
    if not others.any():
        raise InvalidInput(f"all fit images already have the target class {target}")
    return others


def _learn(
    row: Implementation, classifier: Classifier, learn: Callable[[], Mapping[str, Tensor]], seed: int
) -> Mapping[str, Tensor]:
    """Run the fit of the library. The model is restored afterwards.

    Raises:
        AttackFailed: if the library crashed, or a fitted value is not finite.
    """
    guard = StateGuard(classifier)
    try:
        with isolated_call(seed), load_call_context(row)():
            learned = learn()
    except ModelFailed:
        raise
    except Exception as error:  # whatever ends a library is a failed attack, with reason
        raise AttackFailed(f"{row.name} crashed while it was fitted: {name_error(error)}") from error
    finally:
        guard.restore_silently()
    if not all(value.isfinite().all() for value in learned.values()):
        raise AttackFailed(f"{row.name} returned fitted values that are not finite")
    return learned


def check_fitted(
    row: Implementation, fitted: Fitted, threat_model: ThreatModel, labels: Tensor, targets: Tensor | None
) -> None:
    """Raise InvalidInput unless `fitted` belongs to this implementation, threat model and target.

    An image whose label is the target class of the fit may have any target.
    """
    if not isinstance(fitted, Fitted):
        raise type_error("fitted as a result of fit_attack", fitted)
    if fitted.implementation != row.name or fitted.threat_model != threat_model:
        raise InvalidInput(
            f"`fitted` comes from {fitted.implementation} under {fitted.threat_model}, but the attack is {row.name} "
            f"under {threat_model}"
        )
    if fitted.target is None or targets is None:
        return
    other = (targets != fitted.target) & (labels.to(targets.device) != fitted.target)
    if other.any():
        got = f"{int(other.sum())} images with different targets, such as {int(targets[other][0])}"
        raise InvalidInput(f"expected the target {fitted.target} of the fit for every image, got {got}")


def fitted_kwargs(row: Implementation, fitted: Fitted | None, device: torch.device) -> dict[str, Any]:
    """Return the fitted tensors as keyword arguments of the driver.

    Only implementations that query the model with their fitted tensors need them. For others, the result is empty.
    """
    if fitted is None or not row.learned:
        return {}
    return {row.learned: {name: torch.from_numpy(array).to(device) for name, array in fitted.arrays.items()}}


def apply_fitted(row: Implementation, fitted: Fitted, images: Images, threat_model: ThreatModel) -> LibraryOutput:
    """Apply the fitted tensors to images. The result has the form of a library call without queries."""
    start = time.perf_counter()
    inputs = images.inputs
    learned = {name: torch.from_numpy(array).to(inputs.device) for name, array in fitted.arrays.items()}
    with torch.no_grad():
        adv_inputs = load_apply(row)(learned, inputs.clone(), threat_model)
    none = torch.zeros(len(inputs), dtype=torch.long, device=inputs.device)
    flags = none.bool()
    return LibraryOutput(
        adv_inputs=adv_inputs,
        forwards=none,
        backwards=none,
        seconds=time.perf_counter() - start,
        violations=((),) * len(inputs),
        denied=flags,
        moved=(adv_inputs - inputs).abs().flatten(1).amax(1) > UNCHANGED,
        silent=flags,
        odd_gradient=flags,
        odd_query=flags,
        scored=flags,
        gradients=none,
        put_back=(),
        torch_seeds=(),
        error=None,
    )


def add_perturbation(learned: Mapping[str, Tensor], inputs: Tensor, _: ThreatModel) -> Tensor:
    """Add one fitted perturbation to all images, and clip the images to [0, 1].

    Args:
        learned: fitted tensors, with "perturbation", shape (C, H, W).
        inputs: images, shape (N, C, H, W).

    Raises:
        InvalidInput: if the perturbation was fitted on images of a different shape.
    """
    perturbation = learned["perturbation"]
    if perturbation.shape != inputs.shape[1:]:
        shapes = f"{tuple(inputs.shape[1:])}, got one for images of shape {tuple(perturbation.shape)}"
        raise InvalidInput(f"expected a perturbation for images of shape {shapes}")
    return (inputs + perturbation).clamp(0, 1)
