"""Anything that a model may hold, fed into one hash: equal on every machine, different if the model could be.

What pickle could not take either (an open file or socket, the session of another machine, the state of a library in C)
is not known by what is visible of it: then there is a reason why the identity is unknown.
"""

import enum
import functools
import json
import logging
import re
import struct
import threading
import types
import warnings
import weakref
from collections import deque
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...user_file import Neighbours
from ..answers import Answers
from .encoded_code import CodeEncoder, name_of
from .source_files import Sources, origin_of

_LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Event, threading.Condition, threading.Semaphore)
_NEUTRAL = (*_LOCKS, logging.Logger, Neighbours)  # of the last, the paths of this machine; its files count as code
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_OF_MODULES = frozenset(vars(nn.Module())) | {"training"}
_CARRIED = {"pretrained_cfg", "default_cfg", "pretrained_cfg_overlay"}  # timm's: say where the weights came from
_BUILTIN = (types.BuiltinFunctionType, types.MethodWrapperType, types.MethodDescriptorType, types.WrapperDescriptorType)
_PARTS: Mapping[type, tuple[str, ...]] = {
    types.MethodType: ("__func__", "__self__"),
    functools.partial: ("func", "args", "keywords"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset"),
    functools._lru_cache_wrapper: ("__wrapped__",),
}
# Places in the source, numbers that tell apart classes of one name, and what is said of tensors when it was traced.
_GRAPH_NOISE = re.compile(r"\s*# .*|___torch_mangle_\d+\.|requires_grad=\d|device=\w+(:\d+)?")


class Encoder(CodeEncoder):
    """Feeds values into a hash and notes what could not be known.

    Args:
        sources: where the files of the code that is met are noted.
        reasons: where it is noted why the identity is unknown.
        root: a folder whose place says nothing: paths in it are taken relative to it.
    """

    def __init__(self, sources: Sources, reasons: list[str], root: str = ""):
        super().__init__(sources, reasons)
        self._root = root
        self._places: dict[int, int] = {}
        self._kept: list[Any] = []  # as long as it is here, no other object gets its id

    def add(self, value: Any, where: str) -> None:
        """Feed a value; `where` says in a reason what it is, as "model.session"."""
        if self._add_plain(value):
            return
        if not isinstance(value, tuple):  # whether equal ones are one object is up to the version of Python
            if id(value) in self._places:  # shared, or a circle
                self.put("again", self._places[id(value)])
                return
            self._places[id(value)] = len(self._places)
            self._kept.append(value)
        self._add_structure(value, where)

    def _add_plain(self, value: Any) -> bool:
        """Feed a value that holds no other; whether it was one."""
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
            self.put("device")  # its class is part of a cell
        elif isinstance(value, (torch.dtype, torch.layout, torch.memory_format, np.dtype)):
            self.put("word", value)
        elif isinstance(value, enum.Enum):
            self.put("member", f"{name_of(kind)}.{value.name}")
        elif isinstance(value, Answers):
            self.put("outputs", value.said)
        elif isinstance(value, _NEUTRAL):
            self.put("neutral")
        else:
            return False
        return True

    def _add_structure(self, value: Any, where: str) -> None:
        if isinstance(value, nn.Module):
            stated = getattr(value, "stated_identity", None)  # of a model that cannot be read: it says what it is
            if isinstance(stated, tuple):
                self._add_stated(stated, where)
            else:
                self._add_layer(value, where)
        elif isinstance(value, Tensor):
            self._add_tensor(value, where)
        elif isinstance(value, (np.ndarray, np.generic)):
            self._add_array(np.asarray(value), where)
        elif isinstance(value, type):
            self.put("class", name_of(value))
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
        self.put("container", f"{name_of(type(value))} {len(value)}")
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
        alone = Encoder(self.sources, self.reasons, self._root)
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

    def _add_array(self, value: np.ndarray, where: str) -> None:
        self.put("array", f"{value.dtype.str} {value.shape}")
        if value.dtype.hasobject:
            self.add(value.tolist(), where)
        else:
            self.hash.update(np.ascontiguousarray(value).tobytes())

    def _add_stated(self, stated: tuple[Any, str], where: str) -> None:
        self.put("stated", json.dumps(stated[0], sort_keys=True))
        if stated[1]:
            self.unknown(where, stated[1])

    def _add_layer(self, value: nn.Module, where: str) -> None:
        """A layer: its class, mode, tensors, layers, hooks, and every plain attribute."""
        kind = type(value)
        self.put("module", f"{name_of(kind)} {value.training}")
        stated = getattr(value, "stated_identity", None)
        if (
            isinstance(stated, str) and origin_of(kind.__module__) == "standard"
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
        silent = {name for name, each in attributes.items() if isinstance(each, Answers) and not each.said}
        for name in sorted(attributes.keys() - _OF_MODULES - _CARRIED - silent):
            if not (kind.__module__.startswith("torch.") and name.startswith("_")):
                self.put("attribute", name)
                self.add(attributes[name], f"{where}.{name}")
        for name in _HOOKS:
            for hook in getattr(value, name, {}).values():
                self.put("hook", name)
                self.add(hook, f"a hook of {where}")

    def _add_script(self, value: Any, where: str) -> None:
        """Compiled TorchScript: its graph, in which large constants are not written out."""
        try:
            graph = _GRAPH_NOISE.sub("", str(value.inlined_graph))
        except (RuntimeError, AttributeError):
            graph = ""
        self.put("graph", graph)
        if not graph or "<Tensor>" in graph:
            self.unknown(where, "is TorchScript with constants that cannot be read")

    def _add_object(self, value: Any, where: str) -> None:
        """Any other object: its class and its attributes, or what pickle would keep of it."""
        kind = type(value)
        self.put("object", name_of(kind))
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
                parts = reduced if isinstance(reduced, str) else _unrolled(reduced)
        except Exception:  # whatever a library raises where it has no state to hand out
            name = kind.__qualname__
            article = "an" if name[:1].lower() in "aeiou" else "a"
            self.unknown(where, f"is {article} {name}, whose content cannot be read")
        else:
            self.add(parts, where)


def feed(digest: Any, tensor: Tensor) -> None:
    """Feed the type and the bytes of a tensor."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    digest.update(str(flat.dtype).encode())
    digest.update(flat.view(torch.uint8).numpy() if flat.numel() else b"")


def _parts_of(value: Any) -> tuple[Any, ...] | None:
    """What a callable or a reference is put together from; None for anything else."""
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
    """Whether objects of a class hold nothing but what Python code put into their attributes."""
    return all(
        each is object or each.__module__ in ("typing", "abc") or _has_python_code(each) for each in kind.__mro__
    )


def _has_python_code(kind: type) -> bool:
    functions = any(isinstance(member, types.FunctionType) for member in vars(kind).values())
    return functions or origin_of(kind.__module__) in ("local", "unknown")


def _slots(kind: type) -> list[str]:
    slots: list[str] = []
    for each in kind.__mro__:
        names = vars(each).get("__slots__", ())
        slots += [names] if isinstance(names, str) else list(names)
    return [name for name in slots if name not in ("__dict__", "__weakref__")]


def _unrolled(reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """What rebuilds an object, with its iterators as lists."""
    return (*reduced[:3], *(None if each is None else list(each) for each in reduced[3:5]))
