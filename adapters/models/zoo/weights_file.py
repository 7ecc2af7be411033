"""davylamp's weights files. A file contains the name of a model, its weights and its model card.

Code in it is never run.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ....errors import InvalidInput, Unavailable
from ...paths import expand_path, is_file_name, split_file_name
from ...tensor_file import read_tensor_file
from ...user_code_guard import one_line
from ..classifier import Classifier

_FORMAT = "davylamp weights 1"
_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".tar")


class WeightsFile(NamedTuple):
    """Contents of a weights file of davylamp.

    Args:
        base: name of the model to which the weights belong. "" if the model had no name.
        code: SHA-256 of the model's Python file when the weights were saved. "" if the model is not in a Python file.
        weights: weights of the module by name.
        card: description of the training.
    """

    base: str
    code: str
    weights: dict[str, Tensor]
    card: dict[str, Any]


def is_weights_name(name: str) -> bool:
    """Whether a name is that of a weights file, or of a model with weights from a file."""
    return name.endswith(_SUFFIXES)


def is_trained(path: Path) -> bool:
    """Whether a file contains weights that davylamp saved. False for a plain state dict or an unreadable file."""
    if path.suffix != ".pt" or not path.is_file():
        return False
    try:
        read_tensor_file(path, "weights", "", _FORMAT)
    except (Unavailable, InvalidInput):
        return False
    return True


def base_model_name(name: str) -> str:
    """Return the name of the model whose architecture a name uses.

    For a weights file, this is the model named in the file. For "MODEL+weights.pt", it is MODEL.
    """
    if not is_weights_name(name):
        return name
    path = expand_path(name)
    base, _, file = name.rpartition("+")
    if path.is_file() or not base:
        return read_weights(path).base
    return base if is_trained(expand_path(file)) else name


def pack_weights(base: str, weights: dict[str, Tensor], card: dict[str, Any]) -> dict[str, Any]:
    """Convert weights to the data that `torch.save` writes.

    The name of a model in a Python file gets an absolute path.
    """
    code = ""
    if is_file_name(base):
        path, factory = split_file_name(base)
        base, code = f"{path.resolve()}:{factory}", _digest(path)
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    return {"format": _FORMAT, "base": base, "code": code, "weights": plain, "card": json.dumps(card)}


def read_weights(path: Path) -> WeightsFile:
    """Read a weights file.

    Raises:
        Unavailable: if there is no such file, or it cannot be read.
        InvalidInput: if the file is not a weights file.
    """
    stored = read_tensor_file(path, "weights that davylamp made", "make them with davylamp harden", _FORMAT)
    return WeightsFile(stored["base"], stored["code"], stored["weights"], json.loads(stored["card"]))


def load_weights(name: str, base: str, load: Callable[[str], Classifier]) -> Classifier:
    """Load a model with the weights of a file.

    Args:
        name: name of the file.
        base: name of the model into which the weights are loaded. "" for the model that is named in the file.
        load: function that loads a model by name, on the CPU, without folded layers.

    Raises:
        Unavailable: if the file cannot be read.
        InvalidInput: if the file is not a weights file, its model has changed, or the weights do not fit.
    """
    path = expand_path(name)
    stored = read_weights(path)
    classifier = load(base or _checked_base(path, stored))
    try:
        classifier.model.load_state_dict(stored.weights)
    except RuntimeError as error:
        raise InvalidInput(f"the weights in {path} do not fit {classifier.name} ({one_line(error)})") from error
    classifier.name = f"{base}+{name}" if base else name
    return classifier


def _checked_base(path: Path, stored: WeightsFile) -> str:
    """Return the name of the model in a weights file. Check that the model's Python file exists and has not changed."""
    if not stored.base:
        raise InvalidInput(f"{path} does not record the name of its model; use MODEL+{path}")
    if is_file_name(stored.base):
        file = split_file_name(stored.base)[0]
        if not file.is_file() or _digest(file) != stored.code:
            what = "has changed since" if file.is_file() else "no longer exists"
            raise InvalidInput(
                f"{path} belongs to {stored.base}, which {what}; give the model explicitly: FILE.py:FACTORY+{path}"
            )
    return stored.base


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
