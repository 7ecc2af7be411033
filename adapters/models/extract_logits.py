"""Extraction of logits from a model's output, and explanations of wrong outputs."""

import time
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import scipy
import torch
from torch import Tensor

from ...errors import InvalidInput, ModelFailed
from ...intervals import proportion_interval

_SIDES = (28, 32, 64, 96, 128, 224, 240, 256, 299, 384)  # image sides that published models take
_KEYS = ("logits", "out", "output")
_OF_NO_IMAGE = (OSError, MemoryError, ImportError, SystemExit, KeyboardInterrupt, AttributeError, NameError)
_BATCHES = (2, 16)  # batch sizes to try on a model that fails on one image
_SECONDS = 2.0  # time for finding out what a failing model expects
_FEW = 0.05  # proportion of correct predictions that counts as almost none, for any number of classes
_BY_CHANCE = 0.05  # significance level
OF_ONE_LOGIT = "declare `outputs='logit'` or `outputs='probability'` if this is one number for two classes"


def extract_logits(
    output: Any, name: str, count: int, classes: int | None = None, *, first: bool = False
) -> tuple[Tensor, str]:
    """Find the logits in a model's output.

    They are `.logits` of a dataclass, a named tuple or a ModelOutput. In a dict, they are the entry "logits", "out" or
    "output", or the only tensor. In a tuple or list, they are the only tensor that could be logits, or else the first
    tensor.

    Args:
        output: output of the model.
        name: name of the model, for messages.
        count: number of images in the query.
        classes: number of classes, if known.
        first: whether to use the first tensor of a tuple, because the model is declared to return labels or one number
            for two classes.

    Returns:
        The logits, and a note on how they were found, which is "" for a plain tensor.

    Raises:
        ModelFailed: if there is no tensor, or there are several without a name.
    """
    if isinstance(output, Tensor):
        return output, ""
    kind = type(output).__name__
    if isinstance(getattr(output, "logits", None), Tensor):
        return output.logits, f"took .logits of the {kind} that {name} returns"
    if is_dataclass(output) and not isinstance(output, type):
        output = {field.name: getattr(output, field.name) for field in fields(output)}
    if isinstance(output, Mapping):
        return _from_mapping(output, kind, name)
    parts = list(output) if isinstance(output, list | tuple) else []
    tensors = {place: part for place, part in enumerate(parts) if isinstance(part, Tensor)}
    if not tensors:
        got = f"{kind} of {', '.join(type(part).__name__ for part in parts)}" if parts else kind
        raise ModelFailed(f"{name}: expected logits of shape (N, classes) as a tensor, got {got}")
    taken = next(iter(tensors)) if first else _place_of_logits(tensors, kind, name, count, classes)
    which = "first tensor" if taken == next(iter(tensors)) else "tensor of shape (N, classes)"
    shapes = ", ".join(str(tuple(part.shape)) for place, part in tensors.items() if place != taken)
    others = f" (ignored: {shapes})" if shapes else ""
    return tensors[taken], f"took the {which} of the {kind} that {name} returns{others}"


def _place_of_logits(tensors: dict[int, Tensor], kind: str, name: str, count: int, classes: int | None) -> int:
    """Return the position of the logits among the tensors of a tuple or list.

    If several tensors can be the logits, the one with `classes` columns is chosen. If no tensor can be the logits, the
    first tensor is chosen.
    """
    likely = [
        place
        for place, each in tensors.items()
        if each.ndim == 2 and len(each) == count and each.shape[1] > 1 and each.is_floating_point()
    ]
    fitting = [place for place in likely if tensors[place].shape[1] == classes]
    if len(likely) > 1 and len(fitting) != 1:
        shapes = [tuple(tensors[place].shape) for place in likely]
        known = "" if classes or len(set(shapes)) == 1 else "; or give the module the attribute num_classes"
        raise ModelFailed(
            f"{name}: expected one tensor that could be the logits, got a {kind} with {len(likely)}: "
            f"{', '.join(map(str, shapes))}; return the logits alone, with a wrapper such as model(x)[{likely[-1]}]"
            f"{known}"
        )
    taken = (fitting if len(likely) > 1 else [*likely, *tensors])[0]
    before = next((each for place, each in tensors.items() if place < taken and _may_be_one_logit(each, count)), None)
    if before is not None and tensors[taken].shape[1] != classes:
        raise ModelFailed(
            f"{name}: expected one tensor that could be the logits, got a {kind} with a tensor of shape "
            f"{tuple(before.shape)} and then one of shape {tuple(tensors[taken].shape)}; return the logits alone "
            f"({OF_ONE_LOGIT}), or give the module the attribute num_classes"
        )
    return taken


def _may_be_one_logit(output: Tensor, count: int) -> bool:
    return output.is_floating_point() and tuple(output.shape) in ((count,), (count, 1))


def _from_mapping(output: Mapping[Any, Any], kind: str, name: str) -> tuple[Tensor, str]:
    tensors = {key: value for key, value in output.items() if isinstance(value, Tensor)}
    key = next((key for key in _KEYS if key in tensors), next(iter(tensors)) if len(tensors) == 1 else None)
    if key is None:
        got = ", ".join(map(str, output)) or "nothing"
        raise ModelFailed(
            f"{name}: expected logits as the entry 'logits' or the only tensor, got {kind} with {got}; name "
            "the entry with the logits 'logits', or return the logits alone"
        )
    return tensors[key], f"took the entry {key!r} of the {kind} that {name} returns"


def check_logits(logits: Tensor, count: int, classes: int | None, name: str) -> None:
    """Raise ModelFailed unless the logits are real floating point numbers of shape (count, classes)."""
    if logits.ndim != 2 or len(logits) != count or classes not in (None, logits.shape[1]):
        wanted = f"({count}, {classes or 'classes'})"
        got = f"{tuple(logits.shape)}{_advice_on_shape(logits, count)}"
        raise ModelFailed(f"{name}: expected model outputs of shape {wanted}, got {got}")
    if not logits.is_floating_point():
        raise ModelFailed(f"{name}: expected real logits in floating point, got {_describe_numbers(logits)}")
    if logits.layout != torch.strided:
        raise ModelFailed(f"{name}: expected logits as a dense tensor, got {logits.layout}")


def _advice_on_shape(output: Tensor, count: int) -> str:
    """Return advice for an output of the wrong shape, for shapes that are common mistakes. "" for other shapes."""
    if output.shape in ((count,), (count, 1)):
        return f"; {OF_ONE_LOGIT}, or `outputs='labels'` if these are labels"
    if output.ndim > 2 and len(output) == count and output.shape[1:].numel() == output.shape[1]:
        return "; return outputs.flatten(1)"
    return ""


def _describe_numbers(output: Tensor) -> str:
    dtype = str(output.dtype)
    if output.is_complex() or output.dtype == torch.bool:
        return f"{dtype.removeprefix('torch.')} ({dtype})"
    if bool(((output == 0) | (output == 1)).all()) and bool((output.sum(1) == 1).all()):
        return f"one-hot labels ({dtype}): return the underlying scores, or declare `outputs='labels'`"
    return f"integers ({dtype}): return the scores before rounding"


def failure_depends_on_images(failure: ModelFailed) -> bool:
    """Whether the images may have caused a model's failure.

    False if the process or the machine caused it: the model forked, filled the disk or exited.
    """
    return not isinstance(failure.__cause__, _OF_NO_IMAGE) and "memory" not in str(failure)


@torch.no_grad()
def explain_failure(ask: Callable[[Tensor], object], inputs: Tensor) -> str:
    """Describe the images that a model seems to expect, if the model fails on the given images.

    Args:
        ask: queries the model, and raises ModelFailed if the model fails.
        inputs: images on which the model failed, shape (N, C, H, W).

    Returns:
        The description. "" if no images are found within two seconds on which the model works.
    """
    _, channels, height, width = inputs.shape
    end = time.monotonic() + _SECONDS
    if line := _explain_count(ask, inputs):
        return line
    if width in (1, 3) and channels not in (1, 3) and _answers(ask, inputs[:1].permute(0, 3, 1, 2).contiguous()):
        return "the channels come last: pass images of shape (N, C, H, W), `inputs.permute(0, 3, 1, 2)`"
    given = (channels, height, width)
    shapes = [(other, height, width) for other in (1, 3, 4)]
    shapes += [(channels, side, side) for side in _SIDES]
    shapes += [(other, side, side) for other in (1, 3) for side in _SIDES]
    for shape in dict.fromkeys(shapes):
        if time.monotonic() > end:
            return ""
        if shape != given and _answers(ask, inputs.new_full((1, *shape), 0.5)):
            return f"it works on images of {' x '.join(map(str, shape))}, got {' x '.join(map(str, given))}"
    return ""


def _explain_count(ask: Callable[[Tensor], object], inputs: Tensor) -> str:
    """Describe the number of images per query that a model seems to expect. "" if the number is not the cause."""
    count = len(inputs)
    if count > 1 and _answers(ask, inputs[:1].clone()):
        if _answers(ask, inputs[:1].repeat(count, 1, 1, 1)):
            return "it fails on some images only"
        return "it accepts only one image at a time; make it accept batches"
    if count == 1 and any(_answers(ask, inputs.repeat(more, 1, 1, 1)) for more in _BATCHES):
        return (
            "it does not accept a single image; make it accept any number, because davylamp also queries single images"
        )
    return ""


def _answers(ask: Callable[[Tensor], object], inputs: Tensor) -> bool:
    try:
        ask(inputs)
    except InvalidInput:
        return False
    return True


def explain_accuracy(logits: Tensor, labels: Tensor) -> str | None:
    """Explain an accuracy that is not better than guessing, in one sentence.

    Args:
        logits: logits of clean images, shape (N, K).
        labels: labels of these images, shape (N,).

    Returns:
        The sentence. None if the accuracy is better than guessing.
    """
    return explain_predictions(logits.argmax(1).cpu(), labels.cpu(), logits.shape[1])


def explain_predictions(predicted: Tensor, labels: Tensor, classes: int) -> str | None:
    """Explain predictions that are not better than guessing, in one sentence.

    Args:
        predicted: predicted classes, shape (N,).
        labels: labels of the images, shape (N,).
        classes: number of classes of the model.

    Returns:
        The sentence. None if the accuracy is better than guessing.
    """
    hit = predicted == labels
    count, right = len(labels), int(hit.sum())
    low, high = proportion_interval(right, count, 1 - 2 * _BY_CHANCE)
    # Better than chance, or possibly at least half way from chance to perfect: nothing to explain.
    if not count or (low > 1 / classes and right > _FEW * count) or high >= (1 + 1 / classes) / 2:
        return None
    line = f"{right} of {count} images are classified correctly: "
    for shift, words in ((1, "start at 1 instead of 0"), (-1, "lack the model's first class, as a background class")):
        agreeing = int((predicted == labels - shift).sum())
        if 2 * agreeing >= count and agreeing * classes > 2 * count:  # half agree if two classes are swapped
            fits = f"with {-shift:+d} added to the labels, at least half of the images are correct"
            return f"{line}the labels seem to {words} ({fits})"
    if len(predicted.unique()) == 1:
        only = int(predicted[0])
        return (
            f"{line}the model assigns class {only} to every image; check the normalisation (mean, std) and the weights"
        )
    named, rows = labels.unique(return_inverse=True)
    given, columns = predicted.unique(return_inverse=True)
    seen = torch.zeros(len(named), len(given)).index_put_((rows, columns), torch.ones(count), accumulate=True)
    order = dict(zip(*scipy.optimize.linear_sum_assignment(-seen.numpy()), strict=True))
    agrees = torch.tensor([order.get(int(row)) == int(column) for row, column in zip(rows, columns, strict=True)])
    better, worse = int((agrees & ~hit).sum()), int((hit & ~agrees).sum())
    enough = float(agrees.float().mean()) >= 0.7 and count >= 2 * len(named)
    if enough and scipy.stats.binomtest(worse, better + worse).pvalue < _BY_CHANCE:
        pairs = ((int(named[row]), int(given[column])) for row, column in order.items())
        label, other = next(each for each in pairs if each[0] != each[1])
        return f"{line}the classes seem to be in a different order (label {label} is mostly predicted as {other})"
    return f"{line}check the order of the classes, the normalisation (mean, std) and the image size"
