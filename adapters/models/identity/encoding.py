"""Adds any value in a model to a hash, so that equal values have the same hash on every machine.

Some objects cannot be identified by their attributes, such as an open file or socket, a connection to a server, or
state in a C library. pickle cannot store these objects either. They are recorded as reasons why the identity is
unknown.
"""

import enum
import functools
import hashlib
import inspect
import json
import logging
import re
import struct
import threading
import types
import warnings
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...user_file import LocalImportFinder
from ..output_format import OutputFormat
from .source_files import SourceFiles, digest_file, module_origin

_LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Event, threading.Condition, threading.Semaphore)
_NEUTRAL = (
    *_LOCKS,
    logging.Logger,
    LocalImportFinder,
)  # the last holds paths of this machine; its files count as code
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_OF_MODULES = frozenset(vars(nn.Module())) | {"training"}
_CARRIED = {"pretrained_cfg", "default_cfg", "pretrained_cfg_overlay"}  # timm's: origin of the weights
_BUILTIN = (types.BuiltinFunctionType, types.MethodWrapperType, types.MethodDescriptorType, types.WrapperDescriptorType)
_PARTS: Mapping[type, tuple[str, ...]] = {
    types.MethodType: ("__func__", "__self__"),
    functools.partial: ("func", "args", "keywords"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset"),
    functools._lru_cache_wrapper: ("__wrapped__",),
}
# Source locations, numbers that distinguish classes of one name, and tensor properties at tracing.
_GRAPH_NOISE = re.compile(r"\s*# .*|___torch_mangle_\d+\.|requires_grad=\d|device=\w+(:\d+)?")

# Code that uses one of these may return results computed elsewhere.
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
# Names with which code reads external data. For models, such reads are observed (`running.readings`).
READERS = frozenset(
    [
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
    ]
)
_C_MEMBERS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_SKIPPED = ("_abc_impl",)  # cache of an abstract class


class Encoder:
    """Adds values to a hash, and records the values that could not be identified.

    Args:
        files: local files that are covered as a whole. Paths in the folder of the first file are hashed relative to
            this folder, so moving the folder does not change the hash.
    """

    def __init__(self, files: Sequence[Path] = ()):
        self.sources = SourceFiles()  # of the code
        self.reasons: list[str] = []  # why the identity is unknown
        for file in files:
            self.sources.add_file(file)
        self._root = str(files[0].resolve().parent) if files else ""
        self.hash = hashlib.sha256()
        self.names_readers = False  # whether code that may read external data is recorded as unknown
        self._classes: set[type] = set()
        self._places: dict[int, int] = {}
        self._kept: list[Any] = []  # keeps objects alive, so that their ids are not reused

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Handle values in the block that are nested too deeply, which are recorded as a reason.

        At the end of the block, the code that was found is added to the hash.
        """
        try:
            yield
        except RecursionError:
            self.reasons.append("its parts are nested too deeply to be read")
        self.put("code", "\n".join(self.sources.digests()))

    def add(self, value: Any, where: str) -> None:
        """Add a value to the hash. `where` is the value's name in reasons, such as "model.session"."""
        if self._add_plain(value):
            return
        if not isinstance(value, tuple):  # whether equal tuples are one object depends on the version of Python
            if id(value) in self._places:  # shared, or a cycle
                self.put("again", self._places[id(value)])
                return
            self._places[id(value)] = len(self._places)
            self._kept.append(value)
        self._add_structure(value, where)

    def _add_plain(self, value: Any) -> bool:
        """Add a value to the hash if it contains no other values. Return whether the value was added."""
        kind = type(value)
        if value is None or kind in (bool, int, bytes, complex, range, types.EllipsisType):
            self.put(kind.__name__, value)
        elif isinstance(value, bytearray):
            self.put("bytearray", bytes(value))
        elif kind is float:
            self.put("float", struct.pack("<d", value))
        elif kind is str or isinstance(value, PurePath):
            text = str(value)
            self.put("text", text.replace(self._root, "<folder>") if self._root else text)
        elif isinstance(value, torch.device):
            self.put("device")  # the device type is part of an attack run
        elif isinstance(value, (torch.dtype, torch.layout, torch.memory_format, np.dtype)):
            self.put("word", value)
        elif isinstance(value, enum.Enum):
            self.put("member", f"{qualified_name(kind)}.{value.name}")
        elif isinstance(value, OutputFormat):
            self.put("outputs", value.declared)
        elif isinstance(value, _NEUTRAL):
            self.put("neutral")
        else:
            return False
        return True

    def _add_structure(self, value: Any, where: str) -> None:
        if isinstance(value, nn.Module):
            stated = getattr(value, "stated_identity", None)  # stated by a model that cannot be read
            if isinstance(stated, tuple):
                self.put("stated", json.dumps(stated[0], sort_keys=True))
                self.unknown(where, stated[1])
            else:
                self._add_layer(value, where)
        elif isinstance(value, Tensor):
            self._add_tensor(value, where)
        elif isinstance(value, (np.ndarray, np.generic)):
            self._add_array(np.asarray(value), where)
        elif isinstance(value, type):
            self.put("class", qualified_name(value))
            self.add_class(value)
        elif isinstance(value, types.ModuleType):
            self.add_module(value)
        elif isinstance(value, types.FunctionType):
            self.add_function(value)
        elif isinstance(value, (list, tuple, set, frozenset, deque, Mapping)):
            self._add_container(value, where)
        elif (parts := _parts_of(value)) is not None:
            self.put("parts", type(value).__name__)
            self.add(parts, where)
        else:
            self._add_object(value, where)

    def _add_container(self, value: Any, where: str) -> None:
        self.put("container", f"{qualified_name(type(value))} {len(value)}")
        if isinstance(value, (set, frozenset)):
            for word in sorted(self._digest_alone(each, where) for each in value):
                self.put("element", word)
        elif isinstance(value, Mapping):
            for key, each in value.items():
                self.add(key, f"a key of {where}")
                self.add(each, f"{where}[{key!r}]" if isinstance(key, (str, int)) else where)
        else:
            for each in value:
                self.add(each, where)
        if type(value).__module__ not in ("builtins", "collections", "types"):
            self.add_class(type(value))
            self.add(dict(vars(value)) if hasattr(value, "__dict__") else None, where)

    def _digest_alone(self, value: Any, where: str) -> str:
        alone = Encoder()
        alone.sources, alone.reasons, alone._root = self.sources, self.reasons, self._root
        alone.add(value, where)
        return alone.hash.hexdigest()

    def _add_tensor(self, value: Tensor, where: str) -> None:
        self.put("tensor", f"{value.dtype} {tuple(value.shape)} {value.layout}")
        try:
            plain = value.detach()
            if plain.is_quantized:
                self.put("quantised", f"{plain.qscheme()} {plain.q_scale()} {plain.q_zero_point()}")
                plain = plain.int_repr()
            feed(self.hash, plain if plain.layout == torch.strided else plain.to_dense())
        except (RuntimeError, NotImplementedError) as error:
            self.unknown(where, f"is a tensor that cannot be read ({str(error).splitlines()[0][:80]})")

    def _add_layer(self, value: nn.Module, where: str) -> None:
        """Add a layer to the hash: its class, mode, tensors, layers, hooks, and every plain attribute."""
        kind = type(value)
        self.put("module", f"{qualified_name(kind)} {value.training}")
        stated = getattr(value, "stated_identity", None)
        if (
            isinstance(stated, str) and module_origin(kind.__module__) == "standard"
        ):  # of ours: it holds what cannot be read
            self.put("stated", stated)
            return
        scripted, compiled = isinstance(value, torch.jit.ScriptModule), kind.__module__.startswith("torch._dynamo")
        if scripted:
            self._add_script(value, where)
        elif isinstance(value, torch.fx.GraphModule):
            self.put("code", value.code)
        else:
            self.add_class(kind)
        for name, tensor in (*value._parameters.items(), *value._buffers.items()):
            self.put("name", name)
            self.add(tensor, f"{where}.{name}")
        for name, layer in value._modules.items():
            self.put("layer", name)
            self.add(layer, f"{where}.{name}")
        attributes = {} if scripted or compiled else dict(vars(value))
        silent = {name for name, each in attributes.items() if isinstance(each, OutputFormat) and not each.declared}
        for name in sorted(attributes.keys() - _OF_MODULES - _CARRIED - silent):
            if not (kind.__module__.startswith("torch.") and name.startswith("_")):
                self.put("attribute", name)
                self.add(attributes[name], f"{where}.{name}")
        for name in _HOOKS:
            for hook in getattr(value, name, {}).values():
                self.put("hook", name)
                self.add(hook, f"a hook of {where}")

    def _add_script(self, value: Any, where: str) -> None:
        """Add compiled TorchScript to the hash, as the text of its graph. Large constants are not part of this text."""
        try:
            graph = _GRAPH_NOISE.sub("", str(value.inlined_graph))
        except (RuntimeError, AttributeError):
            graph = ""
        self.put("graph", graph)
        if not graph or "<Tensor>" in graph:
            self.unknown(where, "is TorchScript with constants that cannot be read")

    def _add_object(self, value: Any, where: str) -> None:
        """Add any other object to the hash: its class, and its attributes or the data that pickle would store."""
        kind = type(value)
        self.put("object", qualified_name(kind))
        self.add_class(kind)
        if _is_python(kind):
            state = {name: getattr(value, name) for name in _slots(kind) if hasattr(value, name)}
            state |= dict(vars(value)) if hasattr(value, "__dict__") else {}
            for name in sorted(state, key=str):
                self.put("attribute", name)
                self.add(state[name], f"{where}.{name}")
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                reduced = value.__reduce_ex__(4)
                if not isinstance(reduced, str):  # its last parts are iterators
                    reduced = (*reduced[:3], *(None if each is None else list(each) for each in reduced[3:5]))
        except Exception:  # any error that a library raises if it has no state to return
            name = kind.__qualname__
            article = "an" if name[:1].lower() in "aeiou" else "a"
            self.unknown(where, f"is {article} {name}, whose content cannot be read")
        else:
            self.add(reduced, where)

    def _add_array(self, value: np.ndarray, where: str) -> None:
        self.put("array", f"{value.dtype.str} {value.shape}")
        if value.dtype.hasobject:
            self.add(value.tolist(), where)
        else:
            self.hash.update(np.ascontiguousarray(value).tobytes())

    def put(self, tag: str, value: object = "") -> None:
        """Add a value to the hash as text.

        Args:
            tag: kind of the value. It is part of the hash, so values of different kinds differ.
            value: the value, which is converted to text.
        """
        data = value if isinstance(value, bytes) else str(value).encode("utf-8", "backslashreplace")
        self.hash.update(f"{tag}:{len(data)}:".encode())
        self.hash.update(data)

    def unknown(self, where: str, why: str) -> None:
        """Record a reason why the identity is incomplete.

        Args:
            where: name of the value, such as "model.session".
            why: the reason. "" records nothing.
        """
        line = f"{where} {why}"
        if why and line not in self.reasons:
            self.reasons.append(line)

    def add_class(self, kind: type) -> None:
        """Add the code of a class and of its base classes to the hash.

        For classes in local files, add their attributes, too.
        """
        for each in kind.__mro__:
            if each in self._classes or each.__module__ == "builtins":
                continue
            self._classes.add(each)
            origin = self.sources.add_module(each.__module__)
            if origin == "installed":
                self.put("file", digest_file(each.__module__))
            elif origin in ("local", "unknown"):
                self.put("class body", qualified_name(each))
                for name, member in _members(each):
                    self.put("member", name)
                    self.add(member, f"{each.__qualname__}.{name}")

    def add_function(self, value: types.FunctionType) -> None:
        """Add a function to the hash: its file, its defaults, its closure, and the values of its globals."""
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
        """Add a module that local code uses to the hash.

        For a local module, all functions, classes and plain values of the module are added.
        """
        name = value.__name__
        if name.partition(".")[0] in REMOTE:
            self.unknown(name, "is used, and remote results may change")
        self.put("python module", module_name(name))
        if self.sources.add_module(name) == "local":
            for key in sorted(vars(value)):
                member = vars(value)[key]
                local = getattr(member, "__module__", None) == name and isinstance(member, (type, types.FunctionType))
                if not key.startswith("__") and (local or is_plain(member)):
                    self.put("global", key)
                    self.add(member, f"{name}.{key}")

    def _add_members(self, value: Any, names: set[str]) -> None:
        """Add the local modules that code with these names can reach through a module, as `far` in `near.far.SCALE`."""
        for name in sorted(names.intersection(vars(value)) if isinstance(value, types.ModuleType) else ()):
            member = vars(value)[name]
            if isinstance(member, types.ModuleType) and module_origin(member.__name__) == "local":
                self.put("global", name)
                self.add(member, f"{value.__name__}.{name}")
                self._add_members(member, names - {name})

    def _add_globals(self, value: types.FunctionType) -> None:
        names = {name for code in _codes(value.__code__) for name in code.co_names}
        for name in sorted(names):
            if self.names_readers and name in READERS:
                self.unknown(value.__qualname__, f"uses {name}, whose data may change")
            if name == "globals":
                self.unknown(value.__qualname__, "uses globals(), which can read any variable of its module")
            if name.partition(".")[0] in REMOTE and not isinstance(value.__globals__.get(name), types.FunctionType):
                self.unknown(value.__qualname__, f"uses {name}, and remote results may change")
            elif name in value.__globals__ and not isinstance(value.__globals__[name], logging.Logger):
                self.put("global", name)
                self.add(value.__globals__[name], f"{name}, a global in {value.__qualname__},")
                self._add_members(value.__globals__[name], names)

    def _add_body(self, value: types.FunctionType) -> None:
        """Add code that has no file to the hash: its source or, if that is missing, its compiled form."""
        try:
            self.put("source", inspect.getsource(value))
        except (OSError, TypeError):
            for code in _codes(value.__code__):
                self.put("compiled", code.co_code)
                self.add(tuple(each for each in code.co_consts if not isinstance(each, types.CodeType)), "a constant")


def feed(digest: Any, tensor: Tensor) -> None:
    """Add the type and the bytes of a tensor to the hash."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    digest.update(str(flat.dtype).encode())
    digest.update(flat.view(torch.uint8).numpy() if flat.numel() else b"")


def _parts_of(value: Any) -> tuple[Any, ...] | None:
    """Return the components of a callable or a reference, such as the function and arguments of a partial function.

    None for any other value.
    """
    if isinstance(value, _BUILTIN):
        owner = getattr(value, "__self__", None)
        return value.__qualname__, None if isinstance(owner, (types.ModuleType, type)) else owner
    if isinstance(value, weakref.ref):
        return (value(),)
    for kind, names in _PARTS.items():
        if isinstance(value, kind):
            return tuple(getattr(value, name) for name in names)
    return None


def _is_python(kind: type) -> bool:
    """Whether instances of a class have only attributes that Python code sets. False for classes written in C."""
    return all(
        each is object or each.__module__ in ("typing", "abc") or _has_python_code(each) for each in kind.__mro__
    )


def _has_python_code(kind: type) -> bool:
    functions = any(isinstance(member, types.FunctionType) for member in vars(kind).values())
    return functions or module_origin(kind.__module__) in ("local", "unknown")


def _slots(kind: type) -> list[str]:
    slots: list[str] = []
    for each in kind.__mro__:
        names = vars(each).get("__slots__", ())
        slots += [names] if isinstance(names, str) else list(names)
    return [name for name in slots if name not in ("__dict__", "__weakref__")]


def qualified_name(kind: type) -> str:
    """Return the module and name of a class."""
    return f"{module_name(kind.__module__)}.{kind.__qualname__}"


def module_name(name: str | None) -> str:
    """Return a module's name.

    "" for a local module, because the name of a local module contains a hash of its location.
    """
    return "" if name is None or module_origin(name) in ("local", "unknown") else name


def is_plain(value: Any) -> bool:
    """Whether a value consists of plain data only: numbers, text, arrays, tensors, and containers of these."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(each) for key, each in value.items())
    kinds = (bool, int, float, complex, str, bytes, PurePath, np.ndarray, np.generic, Tensor, enum.Enum)
    return value is None or isinstance(value, kinds)


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the members of a class with their names.

    Dunder members other than functions are skipped, because some of them contain line numbers.
    """
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
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return [code, *(deep for each in inner for deep in _codes(each))]
