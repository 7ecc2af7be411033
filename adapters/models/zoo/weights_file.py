"""A file of weights that davylamp trained: a model's name, its weights and its card, never run as a program."""

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
    """What is in such a file.

    Args:
        base: name of the model whose weights these can be; "" if it had none.
        code: SHA-256 of the base's Python file, where it is one, as it was.
        weights: of the module, by name.
        card: how they were made.
    """

    base: str
    code: str
    weights: dict[str, Tensor]
    card: dict[str, Any]


def is_weights_name(name: str) -> bool:
    """Whether a name is a file of weights, or a model with one behind it."""
    return name.endswith(_SUFFIXES)


def is_trained(path: Path) -> bool:
    """Whether a file holds weights that davylamp trained; False of a plain state dict, or if it cannot be read."""
    if path.suffix != ".pt" or not path.is_file():
        return False
    try:
        stored = read_tensor_file(path, "weights", "")
    except Unavailable:
        return False
    return isinstance(stored, dict) and stored.get("format") == _FORMAT


def base_model_name(name: str) -> str:
    """The model whose architecture a model has: the one that a file of weights is of, or the model itself."""
    if not is_weights_name(name):
        return name
    path = expand_path(name)
    base, _, file = name.rpartition("+")
    if path.is_file() or not base:
        return read_weights(path).base
    return base if is_trained(expand_path(file)) else name


def pack_weights(base: str, weights: dict[str, Tensor], card: dict[str, Any]) -> dict[str, Any]:
    """What `torch.save` writes; a base in a Python file is named by its whole path."""
    code = ""
    if is_file_name(base):
        path, factory = split_file_name(base)
        base, code = f"{path.resolve()}:{factory}", _digest(path)
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    return {"format": _FORMAT, "base": base, "code": code, "weights": plain, "card": json.dumps(card)}


def read_weights(path: Path) -> WeightsFile:
    """What is in a file.

    Raises:
        Unavailable: if there is none, or it cannot be read.
        InvalidInput: if it holds something else.
    """
    if not path.is_file():
        raise Unavailable(f"expected a file of weights, found none at {path}")
    stored = read_tensor_file(path, "weights that davylamp made", "make them with davylamp harden")
    if not isinstance(stored, dict) or stored.get("format") != _FORMAT:
        raise InvalidInput(f"expected weights that davylamp made (davylamp harden), got something else in {path}")
    return WeightsFile(stored["base"], stored["code"], stored["weights"], json.loads(stored["card"]))


def load_weights(name: str, base: str, load: Callable[[str], Classifier]) -> Classifier:
    """A model with the weights of a file.

    Args:
        name: of the file.
        base: name of the model that they are put into; "" for the one that the file names.
        load: loads a model by its name, on the CPU, with every layer as it was published.

    Raises:
        Unavailable: if the file cannot be read.
        InvalidInput: if it is none, its base is not what it was, or the weights do not fit the model.
    """
    path = expand_path(name)
    stored = read_weights(path)
    classifier = load(base or _checked_base(path, stored))
    try:
        classifier.model.load_state_dict(stored.weights)
    except RuntimeError as error:
        wanted = f"expected weights of {classifier.name} in {path}"
        raise InvalidInput(f"{wanted}, got others ({one_line(error)})") from error
    classifier.name = f"{base}+{name}" if base else name
    return classifier


def _checked_base(path: Path, stored: WeightsFile) -> str:
    """The model that a file names, if nobody else can have put it there."""
    if not stored.base:
        raise InvalidInput(f"expected MODEL+{path}: these weights are of a model that had no name")
    if is_file_name(stored.base):
        file = split_file_name(stored.base)[0]
        if not file.is_file() or _digest(file) != stored.code:
            what = "has changed since" if file.is_file() else "is gone"
            raise InvalidInput(f"{path} is of {stored.base}, which {what}; name the model: FILE.py:FACTORY+{path}")
    return stored.base


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
