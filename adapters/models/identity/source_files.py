"""Finds and hashes the source code of a model, in the user's files and in installed packages."""

import ast
import base64
import hashlib
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any, Literal

Origin = Literal["standard", "torch", "installed", "local", "unknown"]
_OURS = __name__.partition(".")[0]
_MOST_FILES = 2000


class SourceFiles:
    """The files and packages that contain a model's code.

    A user's file is identified by its code, without comments and layout, and by the local files that it imports. An
    installed package is identified by the files that define the model's classes, and by the first two numbers of its
    version. A patch release therefore does not invalidate stored results. The versions of Python and torch are not part
    of this identity.
    """

    def __init__(self) -> None:
        self._files: set[Path] = set()
        self._packages: dict[str, str] = {}

    def add_file(self, path: Path) -> None:
        """Add a local file, and the local files that it imports. The imported files need not be loaded."""
        waiting = [_resolved(path)]
        while waiting and len(self._files) < _MOST_FILES:
            file = waiting.pop()
            if file not in self._files:
                self._files.add(file)
                waiting += _imported_files(file)

    def add_module(self, name: str) -> Origin:
        """Add the module of a class or function, and return its origin: local, installed, Python or torch."""
        origin = module_origin(name)
        if origin == "local":
            self.add_file(Path(getattr(sys.modules.get(name), "__file__", None) or ""))
        elif origin == "installed" and (top := name.partition(".")[0]) != _OURS:
            self._packages.setdefault(top, _short_version(top))
        return origin

    def digests(self) -> Iterator[str]:
        """Yield the digests of all files and packages. Their order does not depend on the location of the files."""
        yield from sorted(digest_path(file) for file in self._files)
        yield from (f"{name} {number}" for name, number in sorted(self._packages.items()))


def code_state(path: Path) -> tuple[str, ...]:
    """Return digests of the code in a file and in the local files that it imports. () if there is no such file."""
    sources = SourceFiles()
    if path.is_file():
        sources.add_file(path)
    return tuple(sources.digests())


@cache
def module_origin(name: str) -> Origin:
    """Return the origin of a module: "local" (user's file), "installed", "torch", "standard" (Python) or "unknown"."""
    top = name.partition(".")[0]
    # The judge's rules, in davylamp itself, have a separate version.
    if (top in sys.stdlib_module_names and top != "__main__") or name.startswith((f"{_OURS}.adapters", f"{_OURS}.err")):
        return "standard"
    if top == "torch":
        return "torch"
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if file is None and module is not None:  # built into an installed package, or created at run time
        file = getattr(sys.modules.get(top), "__file__", None)
    if file is None or name == "__main__":
        return "unknown"
    ours = top == _OURS and not name.startswith(f"{_OURS}.tests")
    if ours or is_installed(Path(file)):
        return "installed"
    return "local" if file.endswith(".py") and Path(file).is_file() else "unknown"


@cache
def digest_file(name: str) -> str:
    """Return the SHA-256 of an installed module's file. "" if the module has no file."""
    file = getattr(sys.modules.get(name), "__file__", None)
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:20] if file else ""
    except OSError:
        return ""


@cache
def _installed_roots() -> tuple[Path, ...]:
    names = ("purelib", "platlib", "stdlib", "platstdlib")
    return tuple({Path(path).resolve() for name in names if (path := sysconfig.get_paths().get(name))})


def is_installed(path: Path) -> bool:
    """Whether a file belongs to an installed package. False for files of an editable package.

    The file may be in a package folder of Python. It may also be in another folder on Python's path (`pip install
    --target`, a cluster's modules). An installer must then have recorded the file, and the file must be unchanged.
    """
    path = _resolved(path)
    if not {"site-packages", "dist-packages"}.isdisjoint(path.parts):
        return True
    parents = set(path.parents)
    if not parents.isdisjoint(_installed_roots()):
        return True
    here = _resolved(Path())
    return any(_is_as_noted(path, root) for root in parents.intersection(_places(here, tuple(sys.path))))


@lru_cache(8)
def _places(here: Path, entries: tuple[str, ...]) -> frozenset[Path]:
    """Return the folders on Python's path. The entry "" is the working directory."""
    return frozenset(_resolved(here / entry) for entry in entries)


def _is_as_noted(path: Path, root: Path) -> bool:
    """Whether an installer has recorded a file in a folder, and the file is unchanged since then."""
    noted = _noted_in(root).get(path.relative_to(root).as_posix())
    if noted is None:
        return False
    kind, _, wanted = noted.partition("=")
    if kind not in hashlib.algorithms_guaranteed:
        return False
    try:
        digest = hashlib.new(kind, path.read_bytes()).digest()
    except OSError:
        return False
    return base64.urlsafe_b64encode(digest).decode().rstrip("=") == wanted


@cache
def _noted_in(root: Path) -> Mapping[str, str]:
    """Return the files that installers have recorded in a folder (`*.dist-info/RECORD`), with their hashes."""
    files = (file for package in distributions(path=[str(root)]) for file in package.files or ())
    return {file.as_posix(): f"{file.hash.mode}={file.hash.value}" for file in files if file.hash}


@cache
def _short_version(package: str) -> str:
    """Return the first two numbers of a package's version."""
    try:
        number = version(package)
    except PackageNotFoundError:
        number = str(getattr(sys.modules.get(package), "__version__", ""))
    return ".".join(number.split("+")[0].split(".")[:2])


def digest_path(path: Path) -> str:
    """Hash the code in a file, or its bytes if it is not Python."""
    try:
        return _digest_text(path.read_bytes())
    except OSError as error:
        return f"unreadable {error.errno}"


@lru_cache(_MOST_FILES)  # a file is read again each time, because it may have been edited; the same text is parsed once
def _digest_text(text: bytes) -> str:
    try:
        digest = hashlib.sha256()
        for word in _words(ast.parse(text)):
            digest.update(word.encode("utf-8", "backslashreplace"))
        return digest.hexdigest()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return hashlib.sha256(text).hexdigest()


def _words(node: Any) -> Iterator[str]:
    """Yield the words of a syntax tree. Empty fields are skipped, because newer versions of Python add such fields."""
    if isinstance(node, ast.AST):
        yield f"({type(node).__name__} "
        for name, value in ast.iter_fields(node):
            if value is not None and value != []:
                yield f"{name}="
                yield from _words(value)
        yield ")"
    elif isinstance(node, list):
        yield "["
        for each in node:
            yield from _words(each)
        yield "]"
    else:
        yield f"{type(node).__name__}:{node!r};"


def _imported_files(path: Path) -> list[Path]:
    try:
        imports = _imports_in(path.read_bytes())
    except OSError:
        return []
    return [file for name, level in imports for file in _locate(name, path, level)]


@lru_cache(_MOST_FILES)
def _imports_in(text: bytes) -> tuple[tuple[str, int], ...]:
    """Return the names that a source text imports anywhere, each with the level of a relative import."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [(alias.name, 0) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            inside = [f"{node.module}.{alias.name}" if node.module else alias.name for alias in node.names]
            names += [(name, node.level) for name in (node.module or "", *inside)]
    return tuple(names)


def _locate(name: str, importer: Path, level: int) -> list[Path]:
    """Find the files of an imported module and of its parent packages.

    Args:
        name: name of the module.
        importer: file with the import. The module is searched next to this file and on Python's path.
        level: number of leading dots of a relative import. 0 for an absolute import.
    """
    parts = [part for part in name.split(".") if part]
    if level:
        roots = [importer.parents[min(level, len(importer.parents)) - 1]]
    elif not parts or parts[0] in sys.stdlib_module_names or parts[0] in ("torch", _OURS):
        return []
    else:
        roots = [importer.parent, *(Path(entry or ".") for entry in sys.path)]
    for root in roots:
        files = []
        for depth in range(1, len(parts) + 1):
            base = root.joinpath(*parts[:depth])
            files += [file for file in (base / "__init__.py", base.with_name(f"{base.name}.py")) if file.is_file()]
        if files:
            return [_resolved(file) for file in files if not is_installed(file)]
    return []


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of links, or the folder was deleted
        return path
