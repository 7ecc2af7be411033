"""Tensors on their way: images as a server takes them, and the message of the Open Inference Protocol around them."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....errors import InvalidInput, Unsupported
from .address import RequestEncoding

JSON_BYTES = "Inference-Header-Content-Length"  # of a message whose values stand behind the JSON
TYPES: Mapping[str, Any] = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "UINT8": np.uint8}
OUTPUT_TYPES = {
    **{"FP16": np.float16, "FP32": np.float32, "FP64": np.float64},
    **{f"INT{bits}": getattr(np, f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": getattr(np, f"uint{bits}") for bits in (8, 16, 32, 64)},
}


def encode_images(images: Tensor, encoding: RequestEncoding, name: str) -> np.ndarray:
    """Images as they are sent, an array whose rows are whole images.

    Args:
        images: shape (N, C, H, W); in [0, 1], unless `Classifier` normalises them.
        encoding: with a layout and a datatype.
        name: of the model, for messages.

    Raises:
        InvalidInput: if pixels are not in [0, 1] and the server takes bytes.
        Unsupported: if the server takes another type.
    """
    kind = TYPES.get(encoding.datatype or "FP32")
    if kind is None:
        raise Unsupported(f"{name} takes images of {encoding.datatype}; known: {', '.join(TYPES)}")
    pixels = images.detach().to("cpu", torch.float32)
    if encoding.datatype == "UINT8":
        if bool((pixels < 0).any()) or bool((pixels > 1).any()):
            raise InvalidInput(f"expected images in [0, 1] for {name}, which takes bytes, got normalised ones")
        pixels = (pixels * 255).round()
    elif encoding.scale != 1:
        pixels = pixels * encoding.scale
    if encoding.layout == "NHWC":
        pixels = pixels.permute(0, 2, 3, 1)
    return np.ascontiguousarray(pixels.numpy().astype(kind))


def decode_numbers(values: Any, shape: tuple[int, ...], datatype: str) -> np.ndarray:
    """Numbers of an answer, from bytes or nested lists.

    Raises:
        ValueError: if they do not fit.
    """
    if datatype not in OUTPUT_TYPES:
        raise ValueError(f"values of {datatype[:20]}")
    if isinstance(values, bytes):
        array = np.frombuffer(values, np.dtype(OUTPUT_TYPES[datatype]).newbyteorder("<"))
    else:
        array = np.array(values, dtype=np.float64 if datatype.startswith("FP") else np.int64)
    wide = np.float32 if datatype.startswith("FP") else np.int64
    return array.reshape(shape).astype(wide)


def pack_tensor(
    content: dict[str, Any], tensor: dict[str, Any], values: np.ndarray, *, binary: bool
) -> tuple[bytes, dict[str, str]]:
    """The body and the headers of a message about one tensor, whose values stand in the JSON or in bytes behind it.

    Args:
        content: the JSON, of which `tensor` is a part.
        tensor: gets the values, or how many bytes they take.
        values: of the tensor.
        binary: by Triton's extension of binary tensor data.
    """
    if not binary:
        tensor["data"] = values.reshape(-1).tolist()
        return json.dumps(content).encode(), {"Content-Type": "application/json"}
    data = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
    tensor["parameters"] = {"binary_data_size": len(data)}
    head = json.dumps(content).encode()
    return head + data, {"Content-Type": "application/octet-stream", JSON_BYTES: str(len(head))}
