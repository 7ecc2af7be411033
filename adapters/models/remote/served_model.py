"""Responses to requests of the Open Inference Protocol, version 2, for one classifier.

This module has no network code.
"""

import json
import re
import threading
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch

from .... import __version__
from ....errors import DavylampError, InvalidInput, ModelFailed
from ...http_server import HttpAnswer, json_answer
from ...user_code_guard import one_line
from ..classifier import Classifier
from .tensors import JSON_BYTES, TYPES, pack_tensor

OUTPUTS = ("logits", "probabilities", "labels")
INPUT = "images"
VERSION = "1"
_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


class ServedModel:
    """A classifier that is served with the Open Inference Protocol. It has one input "images" and one output.

    Args:
        classifier: takes images in [0, 1].
        name: name of the model. If None, the classifier's name, with hyphens for characters that a URL must escape.
        outputs: "logits" or "probabilities" (FP32, (N, K)), or "labels" (INT64, (N,)).
        datatype: type of the pixels: "FP32", or "UINT8" for bytes from 0 to 255.

    Raises:
        InvalidInput: if an argument has an invalid value.
        ModelFailed: if the classifier fails on an image of its declared size.
    """

    def __init__(
        self,
        classifier: Classifier,
        *,
        name: str | None = None,
        outputs: str = "logits",
        datatype: Literal["FP32", "UINT8"] | str = "FP32",
    ):
        if outputs not in OUTPUTS:
            raise InvalidInput(f"expected outputs as {', '.join(OUTPUTS)}, got {outputs!r}")
        if datatype not in ("FP32", "UINT8"):
            raise InvalidInput(f"expected a datatype FP32 or UINT8, got {datatype!r}")
        self.classifier, self.outputs, self.datatype = classifier, outputs, datatype
        self.name = name or _NAME.sub("-", classifier.name).strip("-.") or "model"
        if _NAME.search(self.name):
            raise InvalidInput(f"expected a name of letters, digits, '-', '_' and '.', got {self.name!r}")
        self.answered = 0  # images
        self._lock = threading.Lock()  # one forward pass at a time: a model serves one user
        channels, side = classifier.channels or (3 if classifier.crop else None), classifier.crop
        self.shape = (-1, channels or -1, side or -1, side or -1)
        if side and channels:
            classifier.predict_logits(torch.zeros(1, channels, side, side, device=classifier.device))
        self._path = re.compile(rf"/v2/models/{re.escape(self.name)}(/versions/{VERSION})?(?P<verb>/ready|/infer)?/?")

    @property
    def metadata(self) -> dict[str, Any]:
        """The protocol's metadata for the model, as JSON types."""
        shape = [-1] if self.outputs == "labels" else [-1, self.classifier.num_classes or -1]
        kind = "INT64" if self.outputs == "labels" else "FP32"
        return {
            "name": self.name,
            "versions": [VERSION],
            "platform": "davylamp_pytorch",
            "inputs": [{"name": INPUT, "datatype": self.datatype, "shape": list(self.shape)}],
            "outputs": [{"name": self.outputs, "datatype": kind, "shape": shape}],
        }

    def handle_request(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        """Handle a request.

        Args:
            method: method of the request.
            path: path without a query.
            headers: headers by name in lower case.
            body: body of the request.
        """
        match = self._path.fullmatch(path)
        is_inference = match is not None and match["verb"] == "/infer"
        if method != ("POST" if is_inference else "GET"):
            return _error(405, f"expected {'POST' if is_inference else 'GET'}, got {method}")
        if is_inference:
            try:
                return self._infer(headers, body)
            except (DavylampError, ValueError) as error:
                return _error(400, one_line(error))
        if path.rstrip("/") in ("/v2/health/live", "/v2/health/ready") or (match and match["verb"] == "/ready"):
            return HttpAnswer(200, {}, b"")
        about = {"name": "davylamp", "version": __version__, "extensions": ["binary_tensor_data"]}
        known = about if path.rstrip("/") == "/v2" else self.metadata if match is not None else None
        if known is not None:
            return json_answer(200, known)
        return _error(404, f"unknown path; expected /v2/models/{self.name} or /v2/health/ready")

    def _infer(self, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        length = headers.get(JSON_BYTES.lower())
        if length is not None and not (length.isdecimal() and int(length) <= len(body)):
            raise ValueError(f"expected {JSON_BYTES} as the number of bytes of the JSON, got {length[:20]!r}")
        head = len(body) if length is None else int(length)
        try:
            content = json.loads(body[:head])
        except (ValueError, RecursionError):
            raise ValueError("the request is not valid JSON") from None
        images = _read_images(content, body[head:], self.datatype)
        if any(size not in (-1, got) for size, got in zip(self.shape[1:], images.shape[1:], strict=True)):
            wanted, got = (" x ".join(map(str, each[1:])).replace("-1", "any") for each in (self.shape, images.shape))
            raise ValueError(f"expected images of {wanted}, got {got}")
        with self._lock, torch.no_grad():
            numbers = self._ask(torch.from_numpy(images))
            self.answered += len(images)
        return self._write(content, numbers)

    def _ask(self, images: torch.Tensor) -> np.ndarray:
        logits = self.classifier.predict_logits(images.to(self.classifier.device))
        if self.outputs == "labels":
            if not logits.isfinite().all():
                raise ModelFailed(f"{self.classifier.name}: expected finite logits for a label, got NaN or infinity")
            return logits.argmax(1).cpu().numpy()
        return (logits.softmax(1) if self.outputs == "probabilities" else logits).cpu().numpy()

    def _write(self, content: dict[str, Any], numbers: np.ndarray) -> HttpAnswer:
        kind = "INT64" if self.outputs == "labels" else "FP32"
        output: dict[str, Any] = {"name": self.outputs, "datatype": kind, "shape": list(numbers.shape)}
        answer: dict[str, Any] = {"model_name": self.name, "model_version": VERSION}
        answer |= {"id": content["id"]} if isinstance(content.get("id"), str) else {}
        binary = _wants_binary(content, self.outputs)
        body, headers = pack_tensor({**answer, "outputs": [output]}, output, numbers, binary=binary)
        return HttpAnswer(200, headers, body)


def _read_images(content: Any, tail: bytes, datatype: str) -> np.ndarray:
    """Read the images in a request, float32, shape (N, C, H, W). Values of 0 to 255 are scaled to [0, 1]."""
    inputs = content.get("inputs") if isinstance(content, dict) else None
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise ValueError(f"expected one input {INPUT!r}, got {len(inputs) if isinstance(inputs, list) else 'none'}")
    tensor = inputs[0]
    shape, kind = tensor.get("shape"), str(tensor.get("datatype"))
    if tensor.get("name") != INPUT:
        raise ValueError(f"expected one input {INPUT!r}, got {one_line(tensor.get('name'))[:40]!r}")
    if not isinstance(shape, list) or len(shape) != 4 or not all(type(n) is int and n > 0 for n in shape):
        raise ValueError(f"expected a shape [N, C, H, W], got {one_line(shape)[:60]}")
    if kind not in TYPES or (datatype == "UINT8") != (kind == "UINT8"):
        raise ValueError(f"expected images of {datatype}, got {one_line(kind)[:20]}")
    size = _parameters(tensor).get("binary_data_size") if "data" not in tensor else None
    if size is None:
        try:
            pixels = np.array(tensor.get("data"), dtype=TYPES[kind])
        except (TypeError, ValueError, OverflowError):
            raise ValueError("the data is not a list of numbers") from None
    else:
        if size != len(tail):
            raise ValueError(f"expected {size} bytes after the JSON, got {len(tail)}")
        pixels = np.frombuffer(tail, np.dtype(TYPES[kind]).newbyteorder("<"))
    if pixels.size != int(np.prod(shape, dtype=np.int64)):
        raise ValueError(f"expected {'x'.join(map(str, shape))} numbers, got {pixels.size}")
    pixels = pixels.reshape(shape).astype(np.float32)
    if not np.isfinite(pixels).all():
        raise ValueError("expected finite pixels, got NaN or infinity")
    return pixels / np.float32(255) if datatype == "UINT8" else pixels


def _wants_binary(content: dict[str, Any], name: str) -> bool:
    outputs = content.get("outputs")
    if not isinstance(outputs, list) or not outputs:
        return bool(_parameters(content).get("binary_data_output"))
    known = [each for each in outputs if isinstance(each, dict)]
    wanted = next((each for each in known if each.get("name") == name), None)
    if wanted is None:
        raise ValueError(f"expected the output {name!r}, got {one_line([each.get('name') for each in known])[:60]}")
    return bool(_parameters(wanted).get("binary_data"))


def _parameters(tensor: dict[str, Any]) -> dict[str, Any]:
    given = tensor.get("parameters") or {}
    if not isinstance(given, dict):
        raise ValueError(f"expected parameters as an object, got {one_line(given)[:40]}")
    return given


def _error(status: int, why: str) -> HttpAnswer:
    return json_answer(status, {"error": why})
