"""Probes of a model: measures, in a few passes, whether the assumptions that attacks make about the model hold."""

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm

from ...adapters import Classifier
from ...adapters.data.duplicates import first_occurrence
from ...adapters.models.remote.server_usage import bypass_cache, remote_models_in
from ...adapters.models.sandbox.isolated import call_where_layers_are
from ...adapters.running.determinism import agree, spread
from ...adapters.running.requirements import has_gradients
from ..statistics.paired_tests import mcnemar
from ..statistics.verdict import SIGNIFICANT
from .image_transport import probe_transport

IMAGES = 8  # images for single passes and for gradients
LABELLED = 64  # images for accuracy under other normalisations
FEW_REMOTE, LABELLED_REMOTE = 4, 16  # the same for remote models
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def probe_model(classifier: Classifier, inputs: Tensor, labels: Tensor, logits: Tensor) -> dict[str, Any]:
    """Run the probes that the failure indicators of a model need. Results refer to images by index.

    The random state of torch is preserved.

    Args:
        classifier: the model.
        inputs: clean images in [0, 1], shape (N, C, H, W).
        labels: ground truth, shape (N,).
        logits: logits of these images, shape (N, K).

    Returns:
        JSON types by indicator: "eval-mode", "deterministic", "zero-epsilon", "logits", "gradients", "normalisation",
        and for a remote model "transport". If the model raises an error in a probe, its result is the text under
        "error".
    """
    few, few_labels = inputs[:IMAGES], labels[:IMAGES].to(inputs.device)
    declared = {"random": True} if classifier.random else {}
    places = spread(logits.argmax(1), 0)[:IMAGES]  # images with different predictions
    first = cache(lambda: classifier.predict_logits(inputs[places]))

    def differ(batch_size: int) -> dict[str, Any]:
        seen = _differ(first(), classifier.predict_logits(inputs[places], batch_size=batch_size))
        return {**seen, "changed": sorted(places[seen["changed"]].tolist()), **declared}

    def ask_again() -> dict[str, Any]:
        seen = differ(IMAGES)
        return seen if agree(first(), logits[places].to(first())) else {**seen, "differs": True}

    questions: Mapping[str, Callable[[], dict[str, Any]]] = {
        "eval-mode": lambda: call_where_layers_are(classifier, probe_mode),
        "deterministic": ask_again,
        "zero-epsilon": lambda: differ(1),
        "logits": lambda: {**probe_outputs(logits), **_gives(classifier)},
        "gradients": lambda: probe_gradients(classifier, few, few_labels),
        "normalisation": lambda: call_where_layers_are(
            classifier, probe_normalisation, inputs[:LABELLED], labels[:LABELLED], logits[:LABELLED]
        ),
    }
    if remote_models_in(classifier):
        questions = _of_remote(classifier, inputs, labels, logits, questions)
    answers = {}
    with torch.random.fork_rng(devices=[]), classifier.frozen(), bypass_cache(classifier):
        for name, ask in questions.items():
            try:
                answers[name] = ask()
            except Exception as error:  # a failing probe must not stop the evaluation; its reason is reported
                answers[name] = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]}
    return answers


def _of_remote(
    classifier: Classifier,
    inputs: Tensor,
    labels: Tensor,
    logits: Tensor,
    questions: Mapping[str, Callable[[], dict[str, Any]]],
) -> dict[str, Callable[[], dict[str, Any]]]:
    """Return the probes of a remote model: on fewer images, and with the probe "transport".

    The queries bypass the answer cache. Outputs that differ from `logits` therefore mean that the server has changed.
    """
    few, part = slice(FEW_REMOTE), slice(LABELLED_REMOTE)

    def ask_again() -> dict[str, Any]:
        again = classifier.predict_logits(inputs[few])
        now, before = _differ(classifier.predict_logits(inputs[few]), again), _differ(logits[few].to(again), again)
        # A few labels are not conclusive; the outputs for the fixed images are known.
        fixed = {"unsteady": True} if any(part.is_nondeterministic for part in remote_models_in(classifier)) else {}
        declared = {"random": True} if classifier.random else fixed
        return {**max(now, before, key=lambda each: (len(each["changed"]), each["difference"])), **declared}

    asked = {
        "deterministic": ask_again,
        "zero-epsilon": lambda: _differ(
            classifier.predict_logits(inputs[few]), classifier.predict_logits(inputs[few], batch_size=1)
        ),
        "normalisation": lambda: probe_normalisation(classifier, inputs[part], labels[part], logits),
        "gradients": lambda: {"images": 0, "absent": True},
        "transport": lambda: probe_transport(classifier, inputs),
    }
    return {**questions, **asked}


def probe_mode(classifier: Classifier) -> dict[str, Any]:
    """Return the names of the layers that remain in training mode, or use batch statistics, after `eval()`."""
    classifier.eval()
    layers = list(classifier.model.named_modules())
    return {
        "handed_over_training": classifier.handed_over_training,
        "training": [name or type(layer).__name__ for name, layer in layers if layer.training],
        "batch_statistics": [n for n, layer in layers if isinstance(layer, _BatchNorm) and layer.running_mean is None],
    }


def probe_outputs(logits: Tensor) -> dict[str, Any]:
    """Return the range of the outputs, and whether they look like (log-)probabilities instead of logits."""
    flat = logits.detach().float().cpu()
    sums = flat.logsumexp(1)
    return {
        "images": len(flat),
        "low": float(flat.min()),
        "high": float(flat.max()),
        "log_probabilities": bool((flat <= 0).all() and (sums.abs() < 1e-3).all()),
        "unit_interval": bool(((flat >= 0) & (flat <= 1)).all()),
    }


def probe_gradients(classifier: Classifier, inputs: Tensor, labels: Tensor) -> dict[str, Any]:
    """Compute the gradient of the cross-entropy for each image, and describe which gradients are unusable.

    Returns:
        A dictionary of JSON types:

        - "images": number of images.
        - "zero", "not_finite": indices of the images whose gradient is zero, or not finite.
        - "constant": whether the gradient is equal for different images.
        - "unavailable": torch's error if the outputs cannot be differentiated, otherwise "".
        - "none": only for a model that returns no gradients: "labels only" or "none".
    """
    answer: dict[str, Any] = {"images": len(inputs), "unavailable": "", "zero": [], "not_finite": [], "constant": False}
    if not has_gradients(classifier, inputs):
        return {**answer, "none": "labels only" if classifier.outputs == "labels" else "none"}
    leaf = inputs.detach().clone().requires_grad_(True)
    try:
        with torch.enable_grad():
            loss = cross_entropy(classifier(leaf), labels, reduction="sum")
            (gradient,) = torch.autograd.grad(loss, leaf)
    except RuntimeError as error:  # the graph is detached between output and input
        return {**answer, "unavailable": " ".join(str(error).split())[:200]}
    flat = gradient.flatten(1)
    finite = torch.isfinite(flat).all(1)
    zero = finite & (flat == 0).all(1)
    first = torch.tensor([place == other for place, other in enumerate(first_occurrence(inputs))], device=finite.device)
    usable = flat[finite & ~zero & first]
    constant = len(usable) > 1 and torch.allclose(usable, usable[:1].expand_as(usable), rtol=1e-6, atol=0)
    return {**answer, "zero": _places(zero), "not_finite": _places(~finite), "constant": bool(constant)}


def probe_normalisation(classifier: Classifier, inputs: Tensor, labels: Tensor, logits: Tensor) -> dict[str, Any]:
    """Return the accuracy with the configured normalisation of the inputs, and with other common normalisations.

    If a different normalisation is better by an exact paired test, the configured normalisation is wrong. To save
    passes, other normalisations are tried only if enough images are misclassified for a significant improvement.
    Correctly classified images are queried only if a normalisation corrects enough of the misclassified images.
    """
    logits, labels = logits[: len(inputs)].cpu(), labels.cpu()
    hits = (logits.argmax(1) == labels) & logits.isfinite().all(1)
    answer: dict[str, Any] = {
        "images": len(labels),
        "classes": logits.shape[1],
        "right": int(hits.sum()),
        "confidence": None if classifier.outputs == "labels" else float(logits.softmax(1).amax(1).mean()),
        "tried": {},
    }
    others, wrong = _other_normalisations(classifier, inputs), ~hits
    if not _may_be_better(int(wrong.sum()), len(others)):  # even if it corrected every error
        return answer
    for name, changed in others.items():
        right = torch.zeros_like(hits)
        right[wrong] = _hits_of(classifier, changed, labels, wrong)
        if not _may_be_better(int(right.sum()), len(others)):
            answer["tried"][name] = {"corrected": int(right.sum()), "of": int(wrong.sum())}
            continue
        right[hits] = _hits_of(classifier, changed, labels, hits)
        answer["tried"][name] = {"right": int(right.sum()), "p": mcnemar(right, hits)}
    return answer


def _may_be_better(corrected: int, tried: int) -> bool:
    """Whether an improvement is significant if `corrected` images become correct and none becomes wrong.

    `tried` is the number of normalisations that are tried, for Bonferroni's correction.
    """
    return 2 * 0.5**corrected * tried < SIGNIFICANT


def _hits_of(classifier: Classifier, changed: Tensor, labels: Tensor, chosen: Tensor) -> Tensor:
    """Return whether the model classifies each selected image correctly, with inputs in a different normalisation."""
    images = changed[chosen.to(changed.device)]
    if not len(images):
        return chosen[chosen]
    with torch.no_grad():
        chunks = [classifier.forward_unnormalised(chunk).cpu() for chunk in images.split(16)]
    logits = torch.cat(chunks)
    return (logits.argmax(1) == labels[chosen]) & logits.isfinite().all(1)


def _other_normalisations(classifier: Classifier, inputs: Tensor) -> dict[str, Tensor]:
    """Return the inputs in each common normalisation except the configured one, by name of the normalisation."""
    pixels = inputs.to(classifier.anchor)
    given = pixels
    if classifier.mean is not None and classifier.std is not None:
        given = (pixels - classifier.mean) / classifier.std
    variants = {"[0, 1], not normalised": pixels, "[-1, 1]": 2 * pixels - 1, "[0, 255]": 255 * pixels}
    if inputs.shape[1] == 3:
        mean, std = (torch.tensor(values).to(pixels).view(1, 3, 1, 1) for values in _IMAGENET)
        variants["ImageNet's mean and std"] = (pixels - mean) / std
        variants["blue and red swapped"] = given.flip(1)
    return {name: changed for name, changed in variants.items() if not torch.equal(changed, given)}


def _gives(classifier: Classifier) -> dict[str, str]:
    """Return the output format of the model for the probe "logits"; empty for logits."""
    return {} if classifier.outputs in (None, "logits") else {"gives": classifier.outputs}


def _differ(first: Tensor, second: Tensor) -> dict[str, Any]:
    difference = float((first - second).abs().max())
    return {
        "images": len(first),
        "difference": difference if math.isfinite(difference) else 1e30,
        "scale": float(first.abs().max().nan_to_num(0.0, 0.0, 0.0)),
        "changed": _places(first.argmax(1) != second.argmax(1)),
    }


def _places(mask: Tensor) -> list[int]:
    return [int(place) for place in mask.nonzero()[:, 0]]
