"""Encodes images for a server, and encodes and decodes tensor messages of the Open Inference Protocol."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....errors import InvalidInput, Unsupported
from .address import RequestEncoding

JSON_BYTES = "Inference-Header-Content-Length"  # header of a message whose values follow the JSON
TYPES: Mapping[str, Any] = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "UINT8": np.uint8}
OUTPUT_TYPES = {
    **{"FP16": np.float16, "FP32": np.float32, "FP64": np.float64},
    **{f"INT{bits}": getattr(np, f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": getattr(np, f"uint{bits}") for bits in (8, 16, 32, 64)},
}


def encode_images(images: Tensor, encoding: RequestEncoding, name: str) -> np.ndarray:
    """Convert images to the form that a server expects.

    Args:
        images: images, shape (N, C, H, W). They are in [0, 1], or in any range if `Classifier` normalises them.
        encoding: layout and datatype of the server's input.
        name: name of the model, for messages.

    Returns:
        An array with one row per image.

    Raises:
        InvalidInput: if the server takes bytes and the pixels are not in [0, 1].
        Unsupported: if the server takes an unsupported datatype.
    """
    kind = TYPES.get(encoding.datatype or "FP32")
    if kind is None:
        raise Unsupported(f"{name} takes images of {encoding.datatype}; supported: {', '.join(TYPES)}")
    pixels = images.detach().to("cpu", torch.float32)
    if encoding.datatype == "UINT8":
        if bool((pixels < 0).any()) or bool((pixels > 1).any()):
            raise InvalidInput(f"expected images in [0, 1] for {name}, which takes bytes, got normalised images")
        pixels = (pixels * 255).round()
    elif encoding.scale != 1:
        pixels = pixels * encoding.scale
    if encoding.layout == "NHWC":
        pixels = pixels.permute(0, 2, 3, 1)
    return np.ascontiguousarray(pixels.numpy().astype(kind))


def decode_numbers(values: Any, shape: tuple[int, ...], datatype: str) -> np.ndarray:
    """Convert the values in a response, given as bytes or nested lists, to an array.

    Raises:
        ValueError: if the values do not match the shape or datatype.
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
    """Build the body and headers of a message with one tensor.

    Args:
        content: the JSON of the message, which contains `tensor`.
        tensor: the tensor's entry in the JSON, to which the values or their number of bytes are added.
        values: values of the tensor.
        binary: whether the values follow the JSON as bytes (Triton's binary tensor data extension).
    """
    if not binary:
        tensor["data"] = values.reshape(-1).tolist()
        return json.dumps(content).encode(), {"Content-Type": "application/json"}
    data = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
    tensor["parameters"] = {"binary_data_size": len(data)}
    head = json.dumps(content).encode()
    return head + data, {"Content-Type": "application/octet-stream", JSON_BYTES: str(len(head))}
