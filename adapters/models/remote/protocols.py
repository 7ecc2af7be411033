"""Requests to servers and their responses, in two formats.

The first is the Open Inference Protocol, version 2 over HTTP, used by KServe, Triton, MLServer and OpenVINO (source:
https://github.com/open-inference/open-inference-protocol, with Triton's binary tensor data extension). The second is
plain JSON for any server, described in docs/remote-protocol.md with an example in Go.
"""

import base64
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ....errors import InvalidInput, Unavailable, Unsupported
from ...user_code_guard import one_line
from .address import Address, OutputKind, RequestEncoding
from .client import Reply, RetryingClient, error_of
from .tensors import JSON_BYTES, OUTPUT_TYPES, TYPES, decode_numbers, pack_tensor

BINARY = "binary_tensor_data"
_CHANNELS = (1, 3, 4)
_PREFERRED = ("logits", "probabilities", "scores", "output")
_NAMES = {"FP16": "float16", "FP32": "float32", "FP64": "float64", "UINT8": "uint8"}
_ANSWERS: Mapping[str, OutputKind] = {"logits": "logits", "probabilities": "probabilities", "labels": "labels"}
_LARGEST_BATCH = re.compile(r"batch[- _]?size must be <= ([0-9]{1,6})", re.IGNORECASE)  # Triton's message


class Request(NamedTuple):
    """A request to a server."""

    path: str
    body: bytes
    headers: dict[str, str]


@dataclass(frozen=True)
class TensorSpec:
    """An input or output in a server's metadata. A size of -1 in its shape stands for any number."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    @property
    def text(self) -> str:
        """Name, datatype and shape, as a text for messages."""
        return f"{self.name} {self.datatype} {list(self.shape)}"


class OpenInference:
    """A model on a server that uses the Open Inference Protocol.

    Args:
        address: address of the model.
        client: client for the server.

    Raises:
        ModelFailed: if the server cannot be reached.
        Unavailable: if there is no such model, or its metadata are invalid.
        Unsupported: if the model does not take images, or has several inputs.
    """

    def __init__(self, address: Address, client: RetryingClient):
        self.address = address
        content, inputs, outputs = _read_metadata(address, client)
        self.input = _pick(inputs, address.encoding.input, "input", address)
        self.output = _pick_output(outputs, address.encoding.output, address)
        self.encoding = self._complete(address.encoding)
        self.is_binary = _has_extension(address, client)
        self.notes = _notes(self.input, self.output, outputs, self.encoding)
        # As far as the metadata determine them, the shape (C, H, W) of images and the numbers of their channels, of the
        # images in a request, and of classes.
        count, *sizes = self.input.shape
        shape = tuple(sizes if self.encoding.layout != "NHWC" else [*sizes[2:], *sizes[:2]])
        self.image_shape = (shape[0], shape[1], shape[2]) if len(shape) == 3 and min(shape) > 0 else None
        self.channels = shape[0] if len(shape) == 3 and shape[0] > 0 else None
        self.rows = count if count > 0 else None
        scores = () if self.output is None else self.output.shape
        self.classes = scores[-1] if len(scores) == 2 and scores[-1] > 1 else None
        tensors = {"inputs": inputs, "outputs": outputs}
        # The metadata as JSON types, for the model identity.
        self.identity = {"platform": content["platform"], "versions": content["versions"]} | {
            name: [[each.name, each.datatype, list(each.shape)] for each in of] for name, of in tensors.items()
        }

    def write(self, rows: np.ndarray) -> Request:
        """Build a request for images, given as one row per image."""
        rows = rows.reshape(len(rows), -1) if len(self.input.shape) == 2 else rows
        name, kind = self.input.name, self.encoding.datatype
        tensor: dict[str, Any] = {"name": name, "shape": list(rows.shape), "datatype": kind}
        content: dict[str, Any] = {"id": "davylamp", "inputs": [tensor], "parameters": {"binary_data_output": True}}
        if self.output is not None:
            content["outputs"] = [{"name": self.output.name, "parameters": {"binary_data": True}}]
            del content["parameters"]
        return Request(f"{self.address.path}/infer", *pack_tensor(content, tensor, rows, binary=self.is_binary))

    def read(self, reply: Reply) -> np.ndarray:
        """Read the output from a response, as float32 or int64 in its original shape.

        Raises:
            ValueError: if the response has no output. Its message follows the word "got" in the caller's message.
        """
        length = reply.headers.get(JSON_BYTES.lower(), "")
        self.is_binary = self.is_binary or bool(length)  # it sends binary data, whether or not it lists the extension
        head, tail = (reply.body[: int(length)], reply.body[int(length) :]) if length.isdecimal() else (reply.body, b"")
        content = read_json(reply, head)
        outputs = content.get("outputs") if isinstance(content, dict) else None
        if not isinstance(outputs, list) or not all(isinstance(each, dict) for each in outputs) or not outputs:
            raise ValueError(f"{describe_json(content)} without outputs")
        wanted = self.output.name if self.output else self.address.encoding.output or outputs[0].get("name")
        place = 0
        for output in outputs:
            size = (output.get("parameters") or {}).get("binary_data_size")
            if output.get("name") == wanted:
                shape = tuple(output.get("shape") or ())
                if not all(type(each) is int and each >= 0 for each in shape):
                    raise ValueError(f"an output of shape {one_line(shape)[:60]}")
                values = output.get("data") if size is None else tail[place : place + size]
                return decode_numbers(values, shape, str(output.get("datatype")))
            place += size or 0
        raise ValueError(f"outputs {', '.join(one_line(each.get('name')) for each in outputs)[:120]}")

    def _complete(self, encoding: RequestEncoding) -> RequestEncoding:
        """Complete the settings with the server's metadata. Settings in the model name take precedence."""
        kind, shape = encoding.datatype or self.input.datatype, self.input.shape
        if kind not in TYPES:
            raise Unsupported(
                f"{self.address.name} expects the input {self.input.text}, but davylamp sends images only as "
                f"{', '.join(TYPES)}"
            )
        if len(shape) not in (2, 4):
            wanted = "images of shape (N, C, H, W) or (N, H, W, C), or flat ones of shape (N, components)"
            raise Unsupported(f"expected a model that takes {wanted}, got the input {self.input.text}")
        last = len(shape) == 4 and shape[3] in _CHANNELS and shape[1] not in _CHANNELS
        return replace(encoding, datatype=kind, layout=encoding.layout or ("NHWC" if last else "NCHW"))


def read_json(reply: Reply, body: bytes) -> Any:
    """Parse the JSON in a response.

    Raises:
        ValueError: if the body is not JSON. Its message follows the word "got" in the caller's message.
    """
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        begins = one_line(body[:200].decode("utf-8", "replace"))[:60]
        what = "an HTML page" if reply.kind == "text/html" or begins[:1] == "<" else reply.kind or "an empty type"
        raise ValueError(f"{what} that starts with {begins!r}" if body else "an empty response") from None


def describe_json(content: Any) -> str:
    """Describe a JSON value in a few words."""
    if isinstance(content, dict):
        return f"an object with {', '.join(map(one_line, list(content)[:5]))[:100] or 'nothing'}"
    return {list: "a list", str: "a string", type(None): "null"}.get(type(content), "a number")


def _has_extension(address: Address, client: RetryingClient) -> bool:
    reply = client.send("GET", f"{address.base}/v2")
    try:
        content = json.loads(reply.body) if reply.status == 200 else {}
    except ValueError:
        return False
    return isinstance(content, dict) and BINARY in (content.get("extensions") or [])


def _read_metadata(
    address: Address, client: RetryingClient
) -> tuple[dict[str, Any], tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Request the metadata of a model.

    Returns:
        The platform and versions of the model, its inputs, and its outputs.
    """
    reply, where = client.send("GET", address.path), f"{address.place}{address.path}"
    if reply.status != 200:
        raise Unavailable(f"expected the metadata of {address.model} from {where}, got {client.describe(reply)}")
    try:
        content = read_json(reply, reply.body)
        inputs, outputs = (
            tuple(
                TensorSpec(str(each["name"]), str(each["datatype"]).upper(), tuple(int(n) for n in each["shape"]))
                for each in content.get(name) or ()
            )
            for name in ("inputs", "outputs")
        )
        versions = [str(each) for each in content.get("versions") or ()]
        return {"platform": str(content.get("platform") or ""), "versions": versions}, inputs, outputs
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        why = one_line(error)[:120] if isinstance(error, ValueError) else "JSON of a different form"
        raise Unavailable(
            f"expected the metadata of the Open Inference Protocol from {where}, got {why}; "
            "use json+http://... for a server with plain JSON"
        ) from None


def _pick(tensors: tuple[TensorSpec, ...], name: str, what: str, address: Address) -> TensorSpec:
    listed = ", ".join(each.text for each in tensors) or "none"
    chosen = [each for each in tensors if each.name == name] if name else list(tensors)
    if len(chosen) != 1:
        wanted = f"the {what} {name}" if name else f"one {what}"
        raise Unsupported(f"expected {wanted} of {address.model}, got {listed}; add ?{what}=NAME to the model's name")
    return chosen[0]


def _pick_output(tensors: tuple[TensorSpec, ...], name: str, address: Address) -> TensorSpec | None:
    """Select the output of the server that is used.

    None if the server lists no outputs. The first output of a response is then used.
    """
    if name or not tensors:
        return _pick(tensors, name, "output", address) if tensors else None
    usable = [each for each in tensors if each.datatype in OUTPUT_TYPES]
    scores = [each for each in usable if each.datatype.startswith("FP")]
    for candidates in (usable, scores, [each for each in scores for word in _PREFERRED if each.name == word]):
        if len(candidates) == 1:
            return candidates[0]
    return _pick(tensors, "", "output", address)


def _notes(
    taken: TensorSpec, output: TensorSpec | None, outputs: tuple[TensorSpec, ...], encoding: RequestEncoding
) -> tuple[str, ...]:
    notes = []
    if encoding.datatype == "UINT8":
        notes.append("the server takes bytes, so images are rounded to 8 bits when sent")
    if len(taken.shape) == 4 and max(taken.shape[1], taken.shape[3]) < 0 and not encoding.layout:
        notes.append("the server does not state its axis order; assuming channels first (?layout=NHWC for last)")
    if output is not None and len(outputs) > 1:
        notes.append(f"read the output {output.name} of {', '.join(each.name for each in outputs)}")
    return tuple(notes)


def check_components(shape: tuple[int, ...], spec: TensorSpec, encoding: RequestEncoding, name: str) -> None:
    """Raise InvalidInput unless images of shape (C, H, W) match the server's input."""
    given = shape if encoding.layout != "NHWC" else (*shape[1:], shape[0])
    wanted = spec.shape[1:]
    if len(wanted) == 1:
        fits = wanted[0] in (-1, math.prod(shape))
    else:
        fits = all(size in (-1, got) for size, got in zip(wanted, given, strict=True))
    if not fits:
        sizes = [" x ".join("any" if size < 0 else str(size) for size in each) for each in (wanted, given)]
        raise InvalidInput(f"{name}: expected images of {sizes[0]} ({encoding.layout}), got {sizes[1]}")


class JsonForm:
    """A model at a URL that accepts POST requests with plain JSON and has no metadata.

    Args:
        address: address of the model.
    """

    image_shape = channels = rows = None
    notes: tuple[str, ...] = ()

    def __init__(self, address: Address):
        self.address = address
        self.identity: dict[str, Any] = {}  # without metadata a model is identified by its outputs only
        datatype, layout = address.encoding.datatype or "FP32", address.encoding.layout or "NCHW"
        self.encoding = replace(address.encoding, datatype=datatype, layout=layout)
        self.classes = self.encoding.classes
        if datatype == "UINT8":
            self.notes = ("the server takes bytes, so images are rounded to 8 bits when sent",)

    def write(self, rows: np.ndarray) -> Request:
        """Build a request for images, given as one row per image."""
        if self.encoding.writing == "lists":
            images: Any = rows.tolist()
        else:
            images = base64.b64encode(rows.astype(rows.dtype.newbyteorder("<"), copy=False).tobytes()).decode()
        content = {"images": images, "shape": list(rows.shape), "dtype": _NAMES[self.encoding.datatype]}
        return Request(self.address.path, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def read(self, reply: Reply) -> np.ndarray:
        """Read the output from a response: scores, float32, shape (N, K), or labels, int64, shape (N,).

        Raises:
            ValueError: if the response contains no output. Its message follows the word "got" in the caller's message.
        """
        content = read_json(reply, reply.body)
        if not isinstance(content, dict):
            raise ValueError(describe_json(content))
        wanted = self.encoding.output or self.encoding.outputs
        key = wanted if wanted in content else next((word for word in _ANSWERS if word in content), "")
        if not key:
            raise ValueError(f"{describe_json(content)}; one of {', '.join(_ANSWERS)} is needed")
        kind = _ANSWERS.get(key, self.encoding.outputs)
        if kind and not self.encoding.outputs:
            self.encoding = replace(self.encoding, outputs=kind)
        values = np.array(content[key], dtype=np.float64)
        if kind == "labels":
            if not (np.isfinite(values).all() and (values == values.round()).all()):
                raise ValueError("labels that are not integers")
            if values.ndim > 1 and values[0].size != 1:
                raise ValueError(f"several labels per image, shape {values.shape}; return one label each, or scores")
            return values.astype(np.int64)
        return values.astype(np.float32)


def check_answer(given: np.ndarray, count: int, width: int | None, classes: int | None) -> tuple[np.ndarray, int]:
    """Check the outputs that a server returned for some images.

    Args:
        given: outputs as received.
        count: number of images in the request.
        width: number of classes in earlier outputs. None if there were no earlier outputs.
        classes: number of classes in the server's metadata. None if unknown.

    Returns:
        The outputs and the number of classes. Scores are float32 of shape (count, K), with K classes. Labels are int64
        of shape (count,), with 0 classes.

    Raises:
        ValueError: if the outputs have an invalid shape, or a different form than earlier outputs.
    """
    if given.shape in ((count, 1), (count, 1, 1)) and given.dtype == np.int64:
        given = given.reshape(count)
    if given.dtype == np.int64 and given.ndim == 2:
        given = given.astype(np.float32)
    fits = given.ndim == 1 if given.dtype == np.int64 else given.ndim == 2 and given.shape[1] > 1
    if not fits or len(given) != count:
        raise ValueError(f"{'labels' if given.dtype == np.int64 else 'scores'} of shape {given.shape}")
    of_this = 0 if given.ndim == 1 else given.shape[1]
    if width not in (None, of_this) or (of_this and classes not in (None, of_this)):
        raise ValueError(f"{'labels' if given.ndim == 1 else 'scores'} of shape {given.shape}")
    if of_this == 0 and count and int(given.min()) < 0:
        raise ValueError(f"the label {int(given.min())}")
    return given, of_this


def batch_limit_from_error(reply: Reply, count: int) -> int:
    """Return the largest number of images per request that a server accepts, from its error message.

    Args:
        reply: the server's error response.
        count: number of images in the request that failed.

    Returns:
        The number. 0 if the error has a different reason.
    """
    if reply.status == 413:
        return count // 2
    match = _LARGEST_BATCH.search(error_of(reply)) if reply.status == 400 else None
    limit = int(match[1]) if match else 0
    return limit if 0 < limit < count else 0
