"""Loads ONNX files. If onnx2pytorch reproduces the outputs of a file, the model has gradients.

Otherwise it is a black box.

onnxruntime computes the outputs of black boxes.
"""

from importlib.metadata import version
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ....errors import ModelFailed
from ...paths import expand_path
from ...user_code_guard import one_line
from ..classifier import Classifier
from .onnx_model import OnnxFile, OnnxModel, Session, read_onnx
from .provider import Provider
from .weights import quietly

TOLERANCE = 1e-5  # relative to an image's largest output, or to 1 if that is larger
_SIDES = (224, 16, 28, 32, 64, 96, 128, 240, 256, 299, 384)  # sizes to try if a file leaves the size open
_SHOWN = 2  # random images per range
_SPREADS = ((0, 1), (-2, 2), (0, 255))  # input ranges of models: pixels, normalised pixels, bytes


class _OnnxProbe(NamedTuple):
    """Random images, and the outputs that onnxruntime computes for these images.

    Args:
        images: images of shape (N, C, H, W), in the value range of the file's input. They are not yet converted to the
            layout and type of the input.
        answers: outputs for the images.
        batch: batch size of the file. None if any size is possible.
        side: side of the images, if only one size is known to work. None if other sizes may work.
    """

    images: Tensor
    answers: Tensor
    batch: int | None
    side: int | None


def _load(name: str, rest: str) -> Classifier:
    file, proto = read_onnx(expand_path(rest))
    session = Session(file)
    session.check()
    probed = _probe(session)
    model, said = _choose(session, proto, probed)
    flat = probed.answers.is_floating_point() and probed.answers.ndim == 2
    classifier = Classifier(
        model,
        num_classes=probed.answers.shape[1] if flat else None,
        name=name,
        resize=probed.side,
        crop=probed.side,
    )
    classifier.stated_channels = probed.images.shape[1]
    sized = f"image files are resized and cropped to {probed.side} x {probed.side}, the size of its input"
    pieces = f"takes {model.batch} image{'s' * (model.batch > 1)} at a time" if model.batch is not None else ""
    notes = (said, pieces, *file.notes, sized if probed.side is not None else "")
    classifier.loading_notes = tuple(f"{name}: {note}" for note in notes if note)
    return classifier


def _probe(session: Session) -> _OnnxProbe:
    """Run onnxruntime on random images of the sizes that the file may accept, until one of them works."""
    file = session.file
    channels = (file.channels,) if file.channels else (3, 1)
    open_size = file.height is None or file.width is None
    sizes = [(side, side) for side in _SIDES] if open_size else [(file.height, file.width)]
    failure: Exception | None = None
    for (height, width), count, batch in product(sizes, channels, dict.fromkeys((file.batch, file.batch or 1))):
        images = _random_images(count, file.height or height or 0, file.width or width or 0)
        try:
            answers = OnnxModel(session, None, batch)(images.clamp(0, 1) if file.element == "uint8" else images)
        except Exception as error:  # its error classes have no common base class
            failure = failure or error
        else:
            only = (height, width) != (_SIDES[0], _SIDES[0]) if open_size else height == width
            return _OnnxProbe(images, answers, batch, height if only else None)
    tried = f"{', '.join(map(str, _SIDES))} pixels a side" if open_size else f"{file.width} x {file.height}"
    reason = one_line(failure) if failure is not None else ""
    raise ModelFailed(f"onnxruntime fails on images of {tried} with {file.path} ({reason})")


def _random_images(channels: int, height: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = (_SHOWN, channels, height, width)
    return torch.cat([low + (high - low) * torch.rand(shape, generator=generator) for low, high in _SPREADS])


def _choose(session: Session, proto: Any, probed: _OnnxProbe) -> tuple[OnnxModel, str]:
    """Choose between a differentiable module and a black box for an ONNX file.

    Returns:
        The module if its outputs match onnxruntime's, otherwise a black box. Also a note with the reason.
    """
    black_box = OnnxModel(session, None, probed.batch)
    converted, why = _convert(session.file, proto)
    if converted is None:
        return black_box, _refusal(why)
    for batch in dict.fromkeys((None, probed.batch)):
        model = OnnxModel(session, converted, batch)
        difference, why = _compare(model, probed)
        if not why:
            same = f"matches onnxruntime within {difference:.1g} on {len(probed.images)} random images"
            return model, f"gradients through onnx2pytorch {version('onnx2pytorch')}, which {same}"
    return black_box, _refusal(why)


def _refusal(why: str) -> str:
    return f"a black box, run by onnxruntime {version('onnxruntime')}: {why}"


def _convert(file: OnnxFile, proto: Any) -> tuple[nn.Module | None, str]:
    """Convert an ONNX file to a module with onnx2pytorch.

    Returns:
        The module and "". If the file cannot be converted, None and the reason.
    """
    if file.element == "uint8":
        return None, "rounding to 8 bits blocks gradients"
    try:
        from onnx2pytorch import ConvertModel
    except ImportError:
        return None, 'onnx2pytorch is not installed; run: pip install "davylamp[onnx]" on Python 3.11 or later'
    try:
        with quietly():
            return ConvertModel(proto).eval().requires_grad_(False), ""
    except Exception as error:  # any error, for operations that it does not support
        return None, f"onnx2pytorch cannot convert it ({one_line(error)})"


def _compare(model: OnnxModel, probed: _OnnxProbe) -> tuple[float, str]:
    """Compare the outputs of a converted module with those of onnxruntime.

    Returns:
        The largest relative difference, and the reason why the module cannot be used. "" if it can be used.
    """
    images = probed.images.clone().requires_grad_()
    try:
        answers = model(images)
        if answers.shape != probed.answers.shape:
            return np.nan, f"onnx2pytorch returns {tuple(answers.shape)} instead of {tuple(probed.answers.shape)}"
        if not answers.requires_grad:
            return np.nan, "it blocks gradients"
        weights = torch.randn(answers.shape, generator=torch.Generator().manual_seed(0))
        (gradient,) = torch.autograd.grad((answers.float() * weights).sum(), images)
    except Exception as error:  # any error, from operations that were converted wrongly
        return np.nan, f"its conversion by onnx2pytorch fails ({one_line(error)})"
    largest = probed.answers.abs().flatten(1).amax(1).clamp_min(1)
    difference = ((answers - probed.answers).abs().flatten(1).amax(1) / largest).max().item()
    if not difference <= TOLERANCE:
        return difference, f"onnx2pytorch's outputs differ (by {difference:.1g} of the largest output)"
    if not gradient.isfinite().all() or not gradient.any():
        return difference, "its gradients are all zero or not finite"
    return difference, ""


PROVIDER = Provider("onnx", _load, ("onnx:FILE.onnx",))
