"""Finds files and environment variables that a model's code reads in a forward pass.

They are part of the model's identity.
"""

import hashlib
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from ..models.classifier import Classifier
from ..models.identity.digest import ModelIdentity, identify_model
from ..models.identity.source_files import digest_path, is_installed, module_origin
from ..models.sandbox.isolated import call_where_layers_are
from ..user_code_guard import one_line
from .seeding import seeded

_ELSEWHERE = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect")
_MOST = 50  # variables, as parts of what a model is
_READERS = ("torch.serialization", "torch.hub")  # of torch what reads files for others
_BESIDE = ("/proc/", "/sys/", "/dev/")
_lock = threading.Lock()
_known: dict[str, set[tuple[str, str]]] = {}  # by digest what was read in this process, as some read once only
_noted: set[tuple[str, str]] | None = None  # while a pass is watched
_is_hooked = False


def identify_asked(classifier: Classifier, name: str, inputs: Tensor) -> ModelIdentity:
    """Compute the identity of a model, including files and environment variables that its code reads in a forward pass.

    If the model has no user code, or its code reads nothing, the result is that of `identify_model`.

    Args:
        classifier: a model, preferably just loaded.
        name: name by which the classifier was loaded.
        inputs: images, shape (N, C, H, W).
    """
    identity = identify_model(classifier, name)
    noted = call_where_layers_are(classifier, list_readings, inputs[:2].to(classifier.device), identity.digest)
    readings = sorted(tuple(map(one_line, each)) for each in noted)
    if not readings:
        return identity
    text = repr([identity.digest, *(each for each in readings if each[2])])
    digest = hashlib.sha256(text.encode()).hexdigest()[:20]
    reasons = [
        f"it uses {what} {which}, which may return different results"
        for what, which, content in readings
        if not content
    ]
    return ModelIdentity(digest, (*identity.reasons, *dict.fromkeys(reasons)))


def list_readings(classifier: Classifier, inputs: Tensor, digest: str) -> list[list[str]]:
    """List the files and variables that user code reads in a forward pass.

    Returns:
        The kind, name and digest of each. The digest is "" if the file or variable does not exist.
    """
    kinds = {kind.__module__ for part in classifier.modules() for kind in type(part).__mro__}
    if all(module_origin(name) not in ("local", "unknown") for name in kinds):
        return []
    with _lock, _noting(_known.setdefault(digest, set())) as seen, seeded(0), suppress(Exception), torch.no_grad():
        classifier(inputs)  # the runs report it if it fails
    written = {which for kind, which in seen if kind == "written"}  # for itself: nothing from elsewhere
    seen -= {each for each in seen if each[1] in written}
    variables = sum(kind == "environment" for kind, _ in seen)
    if variables > _MOST:
        return [["the", "whole environment", ""]]
    return [[kind, which, _digest(kind, which)] for kind, which in sorted(seen)]


def _digest(kind: str, which: str) -> str:
    if kind == "environment":
        return hashlib.sha256(repr(os.environ.get(which)).encode()).hexdigest()
    if kind == "file" and not which.startswith(_BESIDE):
        path = Path(which)
        with suppress(OSError):
            return digest_path(path) if path.suffix == ".py" else hashlib.sha256(path.read_bytes()).hexdigest()
    return ""


@contextmanager
def _noting(seen: set[tuple[str, str]]) -> Iterator[set[tuple[str, str]]]:
    """Record reads of files and variables in `seen` inside the block.

    Python cannot remove a hook for files. The hook stays installed, but records nothing outside the block.
    """
    global _noted, _is_hooked  # noqa: PLW0603 - a hook cannot be taken away
    if not _is_hooked:
        sys.addaudithook(_note)
        _is_hooked = True
    environments: list[Any] = [os.environ, *([os.environb] if os.supports_bytes_environ else [])]
    values, watching = environments[0]._data, _Variables(environments[0]._data)  # both are views of one dictionary
    _noted = seen
    for each in environments:
        each._data = watching
    try:
        yield seen
    finally:
        _noted = None
        if environments[0]._data is watching:
            values.clear()
            values.update(watching)
            for each in environments:
                each._data = values


class _Variables(dict[Any, Any]):
    def __getitem__(self, key: Any) -> Any:
        if _noted is not None and _reader(sys._getframe(1), files=False):
            _noted.add(("environment", os.fsdecode(key)))
        return super().__getitem__(key)


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if _noted is None:
        return
    with suppress(Exception):  # whatever goes wrong here would be the user's error
        if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
            path, mode, flags = arguments
            writes = mode[:1] in ("w", "a", "x") if isinstance(mode, str) else flags & os.O_WRONLY
            if _reader(sys._getframe(1), files=True):
                _note_file("written" if writes else "file", Path(os.fsdecode(path)).absolute())
        elif event in _ELSEWHERE and _reader(sys._getframe(1), files=True):
            _noted.add((event.rsplit(".", maxsplit=1)[-1], one_line(arguments[:1])))


def _note_file(kind: str, path: Path) -> None:
    if path.suffix == ".pyc":
        path = Path(importlib.util.source_from_cache(str(path)))
    if _noted is not None and not is_installed(path):
        _noted.add((kind, str(path)))


def _reader(frame: FrameType | None, *, files: bool) -> bool:
    """Whether user code makes the current read. Imports do not count.

    Args:
        frame: the calling frame.
        files: whether a file is read. User code may then also read it through a library.
    """
    below, nearest = "", True
    while frame is not None and frame.f_code is not list_readings.__code__:
        name = frame.f_globals.get("__name__", "")
        origin = module_origin(name)
        if origin in ("local", "unknown"):
            return below not in ("_find_and_load", "_handle_fromlist")
        if nearest and origin != "standard":
            nearest = False
            if not files or (origin == "torch" and name not in _READERS):
                return False
        frame, below = frame.f_back, frame.f_code.co_name
    return False
