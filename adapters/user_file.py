"""Loads functions, classes and objects from a user's Python file. The file may import modules in its own folder."""

import hashlib
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from ..errors import Unavailable, UnknownName
from .torch_state import OF_FILES, preserve_torch_state
from .user_code_guard import guard_user_code


@contextmanager
def load_user_object(path: Path, name: str, what: str) -> Iterator[tuple[Any, "LocalImportFinder"]]:
    """Context manager that loads an object from a Python file.

    It yields the object, and an import finder with which the file can import modules of its folder. The finder is
    active during loading. For later imports, use the finder as a context manager. The modules are not visible to other
    files. Changes that the file makes to the process (import paths, working folder, precision, warnings) are undone on
    exit.

    Args:
        path: path of the file.
        name: name of a function, class or object in the file.
        what: description of the object for messages, such as "model factory" or "attack".

    Raises:
        Unavailable: if the file does not exist.
        UnknownName: if the file has no object with this name.
        ModelFailed: if the file raises an error.
    """
    if not path.is_file():
        raise Unavailable(f"no such file: {path} (expected a Python file with {what})")
    neighbours = LocalImportFinder(path.resolve().parent)
    with preserve_process_state([str(path)]), neighbours:
        module = _import_file(path)
        if not hasattr(module, name):
            names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            raise UnknownName(f"{what.rsplit(maxsplit=1)[-1]} in {path}", name, names)
        yield getattr(module, name), neighbours


def load_object(path: Path, name: str, what: str) -> tuple[Any, "LocalImportFinder"]:
    """Load an object from a Python file, and return the object and the import finder, see `load_user_object`.

    Use the object inside the finder's context, so that the file can import modules of its folder.
    """
    with load_user_object(path, name, what) as loaded:
        return loaded


_PRIVATE = "_davylamp_model_"


class LocalImportFinder(AbstractContextManager[None]):
    """Import finder with which a user's file can import the modules in its folder.

    Inside the finder's context, a module in the folder takes precedence over an installed module of the same name, as
    in a script. Python's own modules and modules that were already imported have precedence over both. Outside the
    context, the modules are hidden. Other files can then import their own modules with the same names.

    Args:
        folder: the file's folder.
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

    def __deepcopy__(self, memo: dict[int, Any]) -> "LocalImportFinder":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return nullcontext, ()  # modules stay in their process

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of a module in the folder. None lets Python's other finders search for the module."""
        del target
        top = name.partition(".")[0]
        private = top.startswith(_PRIVATE)
        known = private or top in self._modules or top in self._new
        if top in sys.stdlib_module_names or (path is not None and not known):
            return None
        spec = PathFinder.find_spec(name, [*self._paths, *self._added()] if path is None else path)
        # As in Python itself, a folder without __init__.py comes after every regular module.
        if spec is None or (path is None and spec.origin is None and PathFinder.find_spec(name) is not None):
            return None
        if isinstance(spec.loader, SourceFileLoader):
            spec.loader = _FreshLoader(spec.loader.name, spec.loader.path)
        if not private:
            self._new.append(name)
        return spec

    def _added(self) -> list[str]:
        return [entry for entry in sys.path if entry not in self._path_before]


class _FreshLoader(SourceFileLoader):
    """Loads a module from its source and ignores its bytecode file, which may be older than an edit of the source."""

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - the signature is importlib's
        return self.source_to_code(self.get_data(self.path), self.path)


def _import_file(path: Path) -> ModuleType:
    """Import a Python file as a module of a private package.

    The module thus does not replace other modules of the same name, and can use relative imports.
    """
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
    with guard_user_code(str(path), descriptors=True):
        spec.loader.exec_module(module)
    return module


@contextmanager
def preserve_process_state(arguments: list[str] | None = None) -> Iterator[None]:
    """Context manager that restores settings of the process that user code may change.

    The settings are the working folder, precision, device, warnings and NumPy's error handling.

    Args:
        arguments: command line arguments (`sys.argv[1:]`) that the user code sees. None for the current arguments.
    """
    before = sys.argv
    with preserve_torch_state(OF_FILES):
        sys.argv = before if arguments is None else arguments
        try:
            yield
        finally:
            sys.argv = before
