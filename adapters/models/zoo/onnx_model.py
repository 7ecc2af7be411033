"""An ONNX file as a module, which onnxruntime runs or onnx2pytorch converts."""

import re
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ....errors import MissingLibrary, ModelFailed, Unavailable
from ...user_code_guard import one_line
from .onnx_file import OnnxFile, digest_again

# Text before the reason in its errors: the file's name again, and the source location.
_PLACES = re.compile(
    r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : (Load model from .*? failed: ?)?|/\S+\.(h|cc):\d+ .*?\) (?=[A-Z])",
    re.DOTALL,
)


class Session:
    """Runs an ONNX file with onnxruntime on the CPU, with torch's number of threads.

    A copy in a different process opens the file again.

    Args:
        file: the file, which is opened at the first query.
    """

    def __init__(self, file: OnnxFile):
        self.path, self.digest = file.path, file.digest
        self.input_name, self.output_name = file.input_name, file.output_name
        self._opened: Any = None

    def ask(self, images: np.ndarray) -> np.ndarray:
        """Return the selected output for images in the file's format."""
        if self._opened is None:
            self._opened = self._open()
        answer = self._opened.run([self.output_name], {self.input_name: images})[0]
        if not isinstance(answer, np.ndarray):
            raise ModelFailed(f"{self.path}: expected {self.output_name} as a tensor, got {type(answer).__name__}")
        return answer

    def check(self) -> None:
        """Open the file now instead of at the first query.

        Raises:
            MissingLibrary: if onnxruntime is not installed.
            Unavailable: if onnxruntime cannot run the file.
        """
        self._opened = self._open()

    def _open(self) -> Any:
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingLibrary(error.name or "onnxruntime", "onnx") from error
        if digest_again(self.path) != self.digest:
            raise Unavailable(f"{self.path} has changed since it was loaded; load it again")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 4
        try:
            return onnxruntime.InferenceSession(self.path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its error classes have no common base class
            reason = one_line(_PLACES.sub("", str(error)))
            raise Unavailable(f"onnxruntime cannot run {self.path} ({reason})") from error

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_opened": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> "Session":
        return self


class OnnxModel(nn.Module):
    """An ONNX file as a module for images (N, C, H, W).

    Args:
        file: the file's interface.
        session: runs the file as a black box, if `converted` is None.
        converted: conversion of the file by onnx2pytorch, which is differentiable.
        batch: number of images per call, or None for all.
    """

    layers_note = ""
    stated_identity = ""  # replaces the identity of its parts (`identity.encoding`)

    def __init__(self, file: OnnxFile, session: Session, converted: nn.Module | None, batch: int | None):
        super().__init__()
        self.session, self.batch, self.converted = session, batch, converted
        self.element, self.channels_last = file.element, file.channels_last
        self._place = [each.name for each in file.proto.graph.output].index(file.output_name)
        self.gradients = converted is not None
        if converted is None:
            self.layers_note = "onnxruntime shows no layers"
        way = "onnxruntime" if converted is None else "onnx2pytorch"
        self.stated_identity = f"{way} {file.digest} {file.input_name} {file.output_name} {file.channels_last} {batch}"

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the selected output, on the device of the images."""
        images = inputs.permute(0, 2, 3, 1) if self.channels_last else inputs
        pieces = [images] if self.batch is None else images.split(self.batch)
        answers = [self._ask(piece) for piece in pieces]
        return answers[0] if len(answers) == 1 else torch.cat(answers)

    def _ask(self, piece: Tensor) -> Tensor:
        """Compute the output for one batch. A batch that is too small is filled up with copies of its last image."""
        count, missing = len(piece), 0 if self.batch is None else self.batch - len(piece)
        if missing and count:
            piece = torch.cat([piece, piece[-1:].expand(missing, *piece.shape[1:])])
        if self.converted is None:
            return torch.from_numpy(self.session.ask(self._array(piece)).copy()).to(piece.device)[:count]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about its slicing
            answer = self.converted(piece.to(getattr(torch, self.element)))
        return (answer[self._place] if isinstance(answer, (list, tuple)) else answer)[:count]

    def _array(self, piece: Tensor) -> np.ndarray:
        piece = piece.detach().cpu()
        if self.element == "uint8":
            return (piece * 255).round().clamp(0, 255).to(torch.uint8).contiguous().numpy()
        return piece.to(getattr(torch, self.element)).contiguous().numpy()
