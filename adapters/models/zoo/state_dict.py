"""Reads plain state dicts and loads them into an architecture. Code in the files is never run."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ....errors import InvalidInput, MissingLibrary, Unavailable
from ...tensor_file import read_tensor_file
from ...user_code_guard import one_line
from ..classifier import Classifier
from .weights import quietly

_ENTRIES = (  # entries of a training checkpoint, in this order
    *("state_dict", "model_state_dict", "model_state", "model", "net", "network", "weights"),
    *("state_dict_ema", "model_ema", "ema"),
)
_SHOWN = 3  # number of keys in a message


class Architecture(NamedTuple):
    """The architecture of a published model, without weights.

    Args:
        make: function that gets a number of classes and returns the module with random weights.
        settings: arguments of the `Classifier` for the published weights, without the number of classes.
    """

    make: Callable[[int], nn.Module]
    settings: Mapping[str, Any]


class StateDict(NamedTuple):
    """Weights by name, and notes on the part of the file in which the weights were found."""

    weights: dict[str, Tensor]
    notes: tuple[str, ...]


def read_state(path: Path) -> StateDict:
    """Read the weights in a file of `torch.save` or safetensors. No code in the file is run.

    Raises:
        Unavailable: if there is no such file, or it cannot be read.
        InvalidInput: if the file contains no state dict.
        MissingLibrary: if safetensors is needed and not installed.
    """
    if not path.is_file():
        raise Unavailable(f"{'expected a file, got the folder' if path.is_dir() else 'no such file'}: {path}")
    stored = (
        _read_safetensors(path)
        if path.suffix == ".safetensors"
        else read_tensor_file(path, "tensors", "save model.state_dict()")
    )
    if _is_state(stored):
        return StateDict(dict(stored), ())
    entries = stored if isinstance(stored, Mapping) else {}
    key = next((key for key in _ENTRIES if _is_state(entries.get(key))), None)
    if key is None:
        got = f"{type(stored).__name__} with {_named(entries)}" if entries else type(stored).__name__
        raise InvalidInput(f"expected a state dict in {path}, got {got}; save model.state_dict()")
    return StateDict(dict(entries[key]), (f"took the entry {key!r} of {path.name} (it has {_named(entries)})",))


def load_into_architecture(name: str, path: Path, architecture: Architecture, published: str) -> Classifier:
    """Build an architecture with the weights in a file. The number of classes is that of the weights.

    Args:
        name: name of the model.
        path: path of the file.
        architecture: the architecture.
        published: name of the architecture's published weights. Their preprocessing is used.

    Raises:
        DavylampError: as for `read_state` and `fit_state`.
    """
    state = read_state(path)
    with quietly():  # about slow initialisations
        classes = _count_classes(architecture, state.weights)
        module = architecture.make(classes or architecture.settings["num_classes"])
    notes = [*state.notes, *fit_state(module, state.weights, path)]
    settings = {**architecture.settings, "num_classes": classes or architecture.settings["num_classes"]}
    classifier = Classifier(module, name=name, **settings)
    taken = f"uses mean, std, resize {classifier.resize} and crop {classifier.crop} of {published}'s published weights"
    classifier.loading_notes = tuple(f"{name}: {note}" for note in (*notes, taken))
    return classifier


def load_into_classifier(name: str, path: Path, classifier: Classifier) -> Classifier:
    """Replace the weights of a loaded model by those in a file.

    Raises:
        DavylampError: as for `read_state` and `fit_state`.
    """
    state = read_state(path)
    notes = [*state.notes, *fit_state(classifier.model, state.weights, path)]
    classifier.name = name
    classifier.loading_notes = (*classifier.loading_notes, *(f"{name}: {note}" for note in notes))
    return classifier


def fit_state(module: nn.Module, weights: Mapping[str, Tensor], path: Path) -> list[str]:
    """Load weights into a module.

    If all names of the weights start with the same prefix ("module." of DataParallel, "_orig_mod." of compile), the
    prefix is removed. It is not removed if the module's own weights have it, too.

    Args:
        module: the module, which is changed.
        weights: weights by name.
        path: path of the file with the weights, for messages.

    Returns:
        Notes on removed prefixes.

    Raises:
        InvalidInput: if the weights do not fit. The message names up to three missing, unexpected and mismatched
            weights of each kind.
    """
    wanted, notes = module.state_dict(), []
    while (first := _common_part(weights)) and first != _common_part(wanted) and not weights.keys() & wanted.keys():
        weights = {name.partition(".")[2]: tensor for name, tensor in weights.items()}
        notes.append(f"removed {first + '.'!r} from the names in {path.name}")
    missing = [name for name in wanted if name not in weights and not name.endswith("num_batches_tracked")]
    unexpected = [name for name in weights if name not in wanted]
    shapes = [(name, weights[name].shape, wanted[name].shape) for name in weights if name in wanted]
    others = [f"{name} {tuple(got)} for {tuple(want)}" for name, got, want in shapes if got != want]
    parts = {"missing": missing, "unexpected": unexpected, "of a different shape": others}
    wrong = [f"{len(names)} {what} ({_named(names)})" for what, names in parts.items() if names]
    if wrong:
        kind = type(module).__name__
        raise InvalidInput(
            f"the weights in {path} do not fit {kind}, which has {len(wanted)} tensors: {'; '.join(wrong)}"
        )
    module.load_state_dict(dict(weights), strict=False)
    return notes


def _count_classes(architecture: Architecture, weights: Mapping[str, Tensor]) -> int | None:
    """Return the number of classes from the sizes of the weights that depend on it. None if unknown."""
    with torch.device("meta"):
        few, more = (architecture.make(classes).state_dict() for classes in (10, 11))
    sizes = set()
    for name in few:
        axes = [axis for axis, (a, b) in enumerate(zip(few[name].shape, more[name].shape, strict=True)) if a != b]
        if len(axes) == 1:
            same = [tensor for key, tensor in weights.items() if key == name or key.endswith(f".{name}")]
            sizes |= {tensor.shape[axes[0]] for tensor in same if tensor.ndim == few[name].ndim}
    return sizes.pop() if len(sizes) == 1 else None


def _read_safetensors(path: Path) -> Any:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise MissingLibrary(error.name or "safetensors", "timm") from error
    try:
        return load_file(path)
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise Unavailable(f"could not read the weights in {path} ({one_line(error)})") from error


def _is_state(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(isinstance(each, Tensor) for each in value.values())


def _common_part(names: Mapping[str, Any]) -> str:
    """Return the first part of the names, before the first dot, if it is the same for all names. "" if it is not."""
    firsts = {name.partition(".")[0] if "." in name else "" for name in names}
    return firsts.pop() if len(firsts) == 1 else ""


def _named(names: Any) -> str:
    shown = [str(name) for name in names]
    return ", ".join(shown[:_SHOWN]) + (", ..." if len(shown) > _SHOWN else "")
