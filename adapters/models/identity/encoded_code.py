"""The code behind a model's classes and functions, fed into a hash: files, defaults, closures, globals in use."""

import functools
import hashlib
import inspect
import logging
import types
from collections.abc import Iterator
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np
from torch import Tensor

from .source_files import Sources, digest_file, origin_of

# What code that uses one of these answers with may be decided elsewhere.
REMOTE = frozenset(
    [
        "aiohttp",
        "anthropic",
        "boto3",
        "ftplib",
        "gradio_client",
        "grpc",
        "http",
        "httpx",
        "openai",
        "paramiko",
        "requests",
        "socket",
        "subprocess",
        "tritonclient",
        "urllib",
        "urllib3",
        "websocket",
        "websockets",
        "xmlrpc",
    ]
)
# What code reads with that comes from outside of it; of models it is seen what they read (`running.readings`).
READERS = frozenset(
    (
        "Popen",
        "__import__",
        "check_output",
        "environ",
        "environb",
        "fromfile",
        "genfromtxt",
        "getenv",
        "import_module",
        "imread",
        "load",
        "loadtxt",
        "memmap",
        "open",
        "popen",
        "read_bytes",
        "read_csv",
        "read_text",
        "system",
    )
)
_C_MEMBERS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_SKIPPED = ("_abc_impl",)  # the cache of an abstract class


class CodeEncoder:
    """The half of `Encoder` that knows classes, functions and modules.

    Args:
        sources: where the files of the code that is met are noted.
        reasons: where it is noted why the identity is unknown.
    """

    def __init__(self, sources: Sources, reasons: list[str]):
        self.sources, self.reasons = sources, reasons
        self.hash = hashlib.sha256()
        self._classes: set[type] = set()
        self.names_readers = False  # whether code that may read something from outside is noted as unknown

    def add(self, value: Any, where: str) -> None:
        """Feed a value; `where` says in a reason what it is, as "model.session"."""
        raise NotImplementedError

    def put(self, tag: str, value: object = "") -> None:
        """Feed a word: its kind, its length and its text."""
        data = value if isinstance(value, bytes) else str(value).encode("utf-8", "backslashreplace")
        self.hash.update(f"{tag}:{len(data)}:".encode())
        self.hash.update(data)

    def unknown(self, where: str, why: str) -> None:
        """Note why the identity is unknown."""
        line = f"{where} {why}"
        if line not in self.reasons:
            self.reasons.append(line)

    def add_class(self, kind: type) -> None:
        """The code of a class and of its bases, and what local ones hold as attributes."""
        for each in kind.__mro__:
            if each in self._classes or each.__module__ == "builtins":
                continue
            self._classes.add(each)
            origin = self.sources.add_module(each.__module__)
            if origin == "installed":
                self.put("file", digest_file(each.__module__))
            elif origin in ("local", "unknown"):
                self.put("class body", name_of(each))
                for name, member in _members(each):
                    self.put("member", name)
                    self.add(member, f"{each.__qualname__}.{name}")

    def add_function(self, value: types.FunctionType) -> None:
        """A function by its file; its defaults, what it closes over, and what the globals in it stand for."""
        origin, name = self.sources.add_module(value.__module__ or ""), value.__qualname__
        self.put("function", f"{module_name(value.__module__)}.{name}")
        self.add(value.__defaults__, f"a default of {name}")
        self.add(value.__kwdefaults__, f"a default of {name}")
        for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            if variable != "__class__":
                self.put("closed over", variable)
                self.add(_content(cell), f"{variable}, which {name} closes over,")
        if origin in ("local", "unknown"):
            self.add(
                {key: attribute for key, attribute in vars(value).items() if key != "__wrapped__"},
                f"an attribute of {name}",
            )
            if origin == "unknown":
                self._add_body(value)
            self._add_globals(value)

    def add_module(self, value: types.ModuleType) -> None:
        """A module that local code uses: of a local one every function, class and plain value."""
        name = value.__name__
        if name.partition(".")[0] in REMOTE:
            self.unknown(name, "is used: what answers from elsewhere may change")
        self.put("python module", module_name(name))
        if self.sources.add_module(name) == "local":
            for key in sorted(vars(value)):
                member = vars(value)[key]
                local = getattr(member, "__module__", None) == name and isinstance(member, (type, types.FunctionType))
                if not key.startswith("__") and (local or is_plain(member)):
                    self.put("global", key)
                    self.add(member, f"{name}.{key}")

    def _add_globals(self, value: types.FunctionType) -> None:
        for name in sorted({name for code in _codes(value.__code__) for name in code.co_names}):
            if self.names_readers and name in READERS:
                self.unknown(value.__qualname__, f"uses {name}: what it reads may change")
            if name.partition(".")[0] in REMOTE and not isinstance(value.__globals__.get(name), types.FunctionType):
                self.unknown(value.__qualname__, f"uses {name}: what answers from elsewhere may change")
            elif name in value.__globals__ and not isinstance(value.__globals__[name], logging.Logger):
                self.put("global", name)
                self.add(value.__globals__[name], f"{name}, a global in {value.__qualname__},")

    def _add_body(self, value: types.FunctionType) -> None:
        """Code that has no file: as it was typed, or else as Python compiled it."""
        try:
            self.put("source", inspect.getsource(value))
        except (OSError, TypeError):
            for code in _codes(value.__code__):
                self.put("compiled", code.co_code)
                self.add(tuple(each for each in code.co_consts if not isinstance(each, types.CodeType)), "a constant")


def name_of(kind: type) -> str:
    """Module and name of a class."""
    return f"{module_name(kind.__module__)}.{kind.__qualname__}"


def module_name(name: str | None) -> str:
    """A model file is loaded under a name that holds a hash of its place, which says nothing about its code."""
    return "" if name is None or origin_of(name) in ("local", "unknown") else name


def is_plain(value: Any) -> bool:
    """Whether a value is data through and through: numbers, text, arrays, tensors, and containers of them."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(each) for key, each in value.items())
    kinds = (bool, int, float, complex, str, bytes, PurePath, np.ndarray, np.generic, Tensor, Enum)
    return value is None or isinstance(value, kinds)


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """What a class defines, by name; of names with two underscores only functions: Python notes line numbers there."""
    callables = (types.FunctionType, staticmethod, classmethod, property, functools.partialmethod)
    for name in sorted(vars(kind)):
        member = vars(kind)[name]
        hidden = name.startswith("__") and name.endswith("__") and not isinstance(member, callables)
        if not hidden and name not in _SKIPPED and not isinstance(member, _C_MEMBERS):
            yield name, member


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _codes(code: types.CodeType) -> list[types.CodeType]:
    """A function's code and that of the functions in it."""
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return [code, *(deep for each in inner for deep in _codes(each))]
