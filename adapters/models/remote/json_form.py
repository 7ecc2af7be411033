"""The small JSON form, for a server of any kind: images in a POST, scores or labels in the answer.

Described in docs/remote-models.md, with an example in Go.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from .address import Address, OutputKind
from .connection import Reply
from .open_inference import Request, describe_json, read_json

_NAMES = {"FP16": "float16", "FP32": "float32", "FP64": "float64", "UINT8": "uint8"}
_ANSWERS: Mapping[str, OutputKind] = {"logits": "logits", "probabilities": "probabilities", "labels": "labels"}


class JsonForm:
    """A model behind a URL that takes a POST; it has no metadata.

    Args:
        address: of the model.
    """

    image_shape = channels = rows = None
    notes: tuple[str, ...] = ()

    def __init__(self, address: Address):
        self.address = address
        datatype, layout = address.encoding.datatype or "FP32", address.encoding.layout or "NCHW"
        self.encoding = replace(address.encoding, datatype=datatype, layout=layout)
        if datatype == "UINT8":
            self.notes = ("the server takes bytes: every image is rounded to 8 bits on its way",)

    @property
    def classes(self) -> int | None:
        """As the name says."""
        return self.encoding.classes

    @property
    def identity(self) -> dict[str, Any]:
        """Nothing but the answers tells one model from another."""
        return {}

    def write(self, rows: np.ndarray) -> Request:
        """The request about some images, each a row."""
        if self.encoding.writing == "lists":
            images: Any = rows.tolist()
        else:
            images = base64.b64encode(rows.astype(rows.dtype.newbyteorder("<"), copy=False).tobytes()).decode()
        content = {"images": images, "shape": list(rows.shape), "dtype": _NAMES[self.encoding.datatype]}
        return Request(self.address.path, json.dumps(content).encode(), {"Content_Type": "application/json"})

    def read(self, reply: Reply) -> np.ndarray:
        """What the answer says: float32 of shape (N, K), or int64 of shape (N,) for labels.

        Raises:
            ValueError: if it says nothing of the kind, in words that finish "got ...".
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
                raise ValueError("labels that are no whole numbers")
            if values.ndim > 1 and values[0].size != 1:
                raise ValueError(f"labels of shape {values.shape}, several for each image: give one, or scores")
            return values.astype(np.int64)
        return values.astype(np.float32)
