"""A user's model: a factory in a Python file that may import its neighbours, run behind the wall."""

import hashlib
import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from ....errors import InvalidInput, Unavailable, UnknownName
from ...user_code import user_code
from ..classifier import Classifier


def load_from_file(name: str, path: Path, factory: str, device: str) -> Classifier:
    """The model that a function without arguments in a Python file makes; or the module that the name stands for.

    The file can import what lies beside it, also later, in its model's forward; no other file gets to see that. What
    it changes for the whole process while it is loaded (paths, folder, precision, warnings) is put back.

    Raises:
        Unavailable: if there is no such file.
        UnknownName: if the file has no such function.
        ModelFailed: if the file or the function fails.
        InvalidInput: if the function needs arguments or returns no model.
    """
    if not path.is_file():
        raise Unavailable(f"expected a Python file with a model factory, found none at {path}")
    neighbours = Neighbours(path.resolve().parent)
    with _process_kept(path), neighbours:
        module = _import_file(path)
        function = getattr(module, factory, None)
        if not callable(function):  # as a module is, too
            own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            raise UnknownName(f"factory in {path}", factory, own)
        if not isinstance(function, nn.Module):
            _check_arguments(function, f"{path}:{factory}")
        with user_code(f"{path}:{factory}", descriptors=True):
            made = function if isinstance(function, nn.Module) else function()
    if isinstance(made, nn.Module):
        with neighbours, user_code(f"{path}:{factory}"):  # which may have an eval() or to() of its own
            classifier = (made if isinstance(made, Classifier) else Classifier(made, name=name)).to(device)
        classifier.surroundings = neighbours
        return classifier
    raise InvalidInput(f"expected a torch.nn.Module or a Classifier from {name}, got {_describe(made)}")


_PRIVATE = "_davylamp_model_"


class Neighbours(AbstractContextManager[None]):
    """What a model's file can import besides what is installed: modules in its folder, for that file alone.

    Inside the context they come before installed modules of the same name (not before Python's own or what is imported
    already), as in a script; outside of it they are gone, so that other files get theirs.

    Args:
        folder: of the file.
    """

    def __init__(self, folder: Path):
        self._paths = [str(folder)]
        self._modules: dict[str, ModuleType] = {}
        self._new: list[str] = []
        self._displaced: dict[str, ModuleType] = {}
        self._depth = 0
        self._path_before: list[str] = []

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        sys.meta_path.insert(0, self)  # pyright: ignore[reportArgumentType] - find_spec is all that is asked of it
        self._path_before = list(sys.path)
        for name, module in self._modules.items():
            if name in sys.modules:
                self._displaced[name] = sys.modules[name]
            sys.modules[name] = module

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth:
            return
        sys.meta_path.remove(self)  # pyright: ignore[reportArgumentType]
        if sys.path != self._path_before:
            self._paths += self._added()
            sys.path[:] = self._path_before
        for name in (*self._modules, *self._new):
            if (module := sys.modules.pop(name, None)) is not None:
                self._modules[name] = module
        sys.modules.update(self._displaced)
        self._displaced, self._new = {}, []

    def __deepcopy__(self, memo: dict[int, Any]) -> "Neighbours":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return nullcontext, ()  # modules stay in their process

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Python's question to a finder: where a module is; None lets the next finder answer."""
        del target
        top = name.partition(".")[0]
        private = top.startswith(_PRIVATE)
        known = private or top in self._modules or top in self._new
        if top in sys.stdlib_module_names or (path is not None and not known):
            return None
        spec = PathFinder.find_spec(name, [*self._paths, *self._added()] if path is None else path)
        # As for Python itself, a folder without __init__.py comes after every real module.
        if spec is None or (path is None and spec.origin is None and PathFinder.find_spec(name) is not None):
            return None
        if isinstance(spec.loader, SourceFileLoader):
            spec.loader = _FreshLoader(spec.loader.name, spec.loader.path)
        if not private:
            self._new.append(name)
        return spec

    def _added(self) -> list[str]:
        """What the file itself has put on the path."""
        return [entry for entry in sys.path if entry not in self._path_before]


class _FreshLoader(SourceFileLoader):
    """Compiles what is in the file now: a bytecode file cannot be told from one of an edit a second ago."""

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - the signature is importlib's
        return self.source_to_code(self.get_data(self.path), self.path)


def _import_file(path: Path) -> ModuleType:
    """Run a Python file as a module of a private package, so that it shadows no other and may say `from . import`."""
    package = ModuleType(f"{_PRIVATE}{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}")
    package.__path__ = [str(path.resolve().parent)]
    name = f"{package.__name__}.{path.stem.replace('.', '_')}"
    spec = spec_from_file_location(name, path, loader=_FreshLoader(name, str(path)))
    if spec is None or spec.loader is None:
        raise Unavailable(f"expected a Python file, got {path}")
    for old in [key for key in sys.modules if key.startswith(package.__name__)]:
        del sys.modules[old]
    module = module_from_spec(spec)
    # Dataclasses and pickle look the module up by its name.
    sys.modules |= {package.__name__: package, name: module}
    importlib.invalidate_caches()
    with user_code(str(path), descriptors=True):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _process_kept(path: Path) -> Iterator[None]:
    """Put back what a file may set for the whole process; its own command line is empty."""
    folder, arguments = _working_folder(), sys.argv
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    sys.argv = [str(path)]
    try:
        with warnings.catch_warnings(), np.errstate():
            yield
    finally:
        sys.argv = arguments
        if folder and _working_folder() != folder:
            os.chdir(folder)
        if torch.get_default_dtype() != dtype:
            torch.set_default_dtype(dtype)
        if torch.get_default_device() != device:
            torch.set_default_device(None if device.type == "cpu" else device)


def _working_folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except FileNotFoundError:  # it was deleted
        return ""


def _check_arguments(function: Any, where: str) -> None:
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise InvalidInput(f"expected a function without arguments as {where}, got {error}") from error
    except ValueError:  # a signature is not to be had
        return


def _describe(made: Any) -> str:
    """What a factory returned, and what to do where that is known."""
    if inspect.iscoroutine(made):
        made.close()
        return "a coroutine; make the factory a plain function, not async"
    if made is None:
        return "NoneType; the factory has to return the model"
    if isinstance(made, tuple | list):
        return f"{type(made).__name__} of {', '.join(type(part).__name__ for part in made)}; return the model alone"
    if isinstance(made, type):
        return f"the class {made.__name__}; return an instance"
    return type(made).__name__
