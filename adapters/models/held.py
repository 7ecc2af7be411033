"""Records and restores the state of a model that is not in its tensors, such as attributes, globals and classes."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from operator import is_
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as of_all_modules

from ...errors import DavylampError, Unsupported

_ABSENT = object()
_PLAIN = (bool, int, float, complex, str, bytes)
_OF_MODULES = frozenset(vars(nn.Module())) | {"training", "forward"}  # `StateGuard` checks these itself
_OURS = __name__.partition(".")[0]
_SPACES = (torch, functional, torch.autograd, torch.linalg, torch.special, torch.Tensor)
_BY_TORCH = frozenset({"manual_seed"})  # replaced by torch itself when its compiler is loaded
_DEPTH, _MOST = 4, 1000  # depth of nested lists, and largest number of elements to search


class Held:
    """The recorded contents of a module, class, list or dictionary, from which changes can be found and undone.

    Args:
        owner: object whose attributes or elements are recorded.
        skip: names to ignore.
        only: the only names to record. None for all names.
    """

    def __init__(self, owner: Any, skip: frozenset[Any] = frozenset(), *, only: Iterable[str] | None = None):
        self._owner, self._skip, self._only = owner, skip, only
        self._before = self._now()

    def moved(self) -> dict[Any, Any]:
        """Return the values that differ from the recorded ones, by name.

        If a list has changed, the result has the whole list, under the name None.
        """
        before, whole = self._before, self._only is None and not isinstance(self._owner, list)
        now = _dictionary(self._owner) if whole else self._now()
        if len(now) == len(before) and all(map(is_, now.values(), before.values())):
            return {}
        if isinstance(self._owner, list):
            values = [*now.values()]
            return {} if None in self._skip or _alike(values, [*before.values()]) else {None: values}
        differing = {name: now.get(name, _ABSENT) for name in {**before, **now} if name not in self._skip}
        return {
            name: value
            for name, value in differing.items()
            if not _alike(value, before.get(name, _ABSENT))
            # Torch loads some of its submodules on first use.
            and not (isinstance(self._owner, ModuleType) and {*map(_is_part, (value, before.get(name)))} == {True})
        }

    def leave(self, differing: Mapping[Any, Any]) -> None:
        """Ignore from now on the values that have changed again since `differing`.

        The model itself changes such values, so they are no damage by an attack.

        Args:
            differing: an earlier result of `moved`.
        """
        self._skip |= {name for name, value in self.moved().items() if not _alike(value, differing.get(name, _ABSENT))}

    def put_back(self) -> bool:
        """Restore all changed values. Return whether there were any."""
        differing = self.moved()
        if differing and isinstance(self._owner, dict) and self._only is None and not self._skip:
            self._owner.clear()  # in place, because handles of hooks refer to it; keeps the order
            self._owner.update(self._before)
            return True
        self.put(
            {name: [*self._before.values()] if name is None else self._before.get(name, _ABSENT) for name in differing}
        )
        return bool(differing)

    def put(self, values: Mapping[Any, Any]) -> None:
        """Set values, given in the format that `moved` returns."""
        owner = self._owner
        for name, value in values.items():
            if isinstance(owner, list):
                owner[:] = value
            elif isinstance(owner, type):
                delattr(owner, name) if value is _ABSENT else setattr(owner, name, value)
            elif value is _ABSENT:
                del _dictionary(owner)[name]
            else:
                _dictionary(owner)[name] = value

    def _now(self) -> dict[Any, Any]:
        if isinstance(self._owner, list):
            return dict(enumerate(self._owner))
        held = _dictionary(self._owner)
        return dict(held) if self._only is None else {name: held.get(name, _ABSENT) for name in self._only}


class _Codes:
    """The recorded code of functions. Code can change even if the function object stays the same."""

    def __init__(self, functions: Iterable[FunctionType]):
        self._before = [(each, each.__code__, each.__defaults__, each.__kwdefaults__) for each in functions]

    def put_back(self) -> bool:
        """Restore all changed code. Return whether there was any."""
        changed = False
        for each, code, defaults, named in self._before:
            if each.__code__ is not code or each.__defaults__ is not defaults or each.__kwdefaults__ is not named:
                each.__code__, each.__defaults__, each.__kwdefaults__ = code, defaults, named
                changed = True
        return changed


def hidden_in(model: nn.Module) -> tuple[list[nn.Module], list[Tensor]]:
    """Return every layer of a model, including those in plain lists and dictionaries, and the tensors in these."""
    modules, tensors = {id(module): module for module in model.modules()}, []
    waiting = [*modules.values()]
    while waiting:
        for each in _elements(vars(waiting.pop())):
            if isinstance(each, Tensor):
                tensors.append(each)
            elif isinstance(each, nn.Module):
                new = {id(module): module for module in each.modules() if id(module) not in modules}
                modules |= new
                waiting += new.values()
    return [*modules.values()], tensors


def held_by(modules: Iterable[nn.Module]) -> list[Held]:
    """Record the state of a model's layers that is not in their tensors.

    The state has three parts: the plain attributes of the layers (also in nested lists and dictionaries), the
    attributes and methods of classes outside torch, and the globals that these methods use. The contents of other
    objects are not recorded.
    """
    of_layers = [vars(module) for module in modules if not type(module).__module__.startswith(_OURS)]
    inner = [each for attributes in of_layers for each in _elements(attributes) if isinstance(each, (list, dict))]
    local = [kind for kind in _kinds(modules) if not _is_fixed(kind)]
    used = {id(space): (space, names) for kind in local for space, names in _globals_of(kind)}
    return [
        *(Held(attributes, _OF_MODULES) for attributes in of_layers),
        *map(Held, (*inner, *local)),
        *(Held(space, only=names) for space, names in used.values()),
    ]


def torchs_for(modules: Iterable[nn.Module]) -> list[Held | _Codes]:
    """Record state that no model should change: torch's functions and classes, their code, and global module hooks."""
    kinds = _kinds(modules)
    tables = (table for name, table in vars(of_all_modules).items() if name.startswith("_global_"))
    return [
        *map(Held, filter(_is_fixed, kinds)),
        *(Held(space, _BY_TORCH) for space in _SPACES),
        *(Held(table) for table in tables if isinstance(table, dict)),
        _Codes(each for kind in (*kinds, functional) for each in _functions_of(kind)),
    ]


@contextmanager
def naming_replaced() -> Iterator[None]:
    """Explain errors in the block if functions of torch.Tensor have been replaced.

    If the block fails in this situation, Unsupported is raised, with the names of the replaced functions. davylamp's
    own errors are raised unchanged.
    """
    try:
        yield
    except DavylampError:
        raise
    except Exception as error:
        replaced = [
            f"torch.Tensor.{name} by {each.__module__}.{each.__qualname__}"
            for name, each in vars(Tensor).items()
            if isinstance(each, FunctionType)
            and hasattr(Tensor.__base__, name)
            and not each.__module__.startswith("torch")
        ]
        if not replaced:
            raise
        failure = f"{type(error).__name__}: {error}"
        raise Unsupported(
            f"functions of torch have been replaced ({', '.join(replaced)}), and a call with them failed: {failure}"
        ) from error


@cache
def _functions_of(space: Any) -> tuple[FunctionType, ...]:
    return tuple(each for each in vars(space).values() if isinstance(each, FunctionType))


def _kinds(modules: Iterable[nn.Module]) -> list[type]:
    return [*dict.fromkeys(kind for module in modules for kind in type(module).__mro__ if kind is not object)]


def _is_fixed(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ("torch", _OURS, "builtins", "typing")


def _elements(attributes: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the lists and dictionaries among a layer's plain attributes, and everything inside them."""
    waiting = [(attributes[name], 0) for name in attributes.keys() - _OF_MODULES]
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, (list, tuple, dict)):
            yield value
            inside = value.values() if isinstance(value, dict) else value
            waiting += [(each, depth + 1) for each in inside] if depth < _DEPTH and len(value) <= _MOST else []
        elif depth or isinstance(value, nn.Module):
            yield value


@cache
def _globals_of(kind: type) -> list[tuple[dict[str, Any], tuple[str, ...]]]:
    """Return the global variables that the methods of a class use: each namespace, with the names that are used."""
    names: dict[int, tuple[dict[str, Any], set[str]]] = {}
    for each in _functions_of(kind):
        space, used = names.setdefault(id(each.__globals__), (each.__globals__, set()))
        used.update(name for name in _names_in(each.__code__) if name in space)
    return [(space, tuple(sorted(used))) for space, used in names.values()]


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names_in(inner)


def _dictionary(owner: Any) -> Any:
    return owner if isinstance(owner, dict) else vars(owner)


def _is_part(value: Any) -> bool:
    """Whether a value in a torch module is a submodule, a class or data. False for functions."""
    return isinstance(value, (type, ModuleType)) or not callable(value)


def _alike(one: Any, other: Any) -> bool:
    """Whether two values are identical, or are equal plain values."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_alike, one, other))
    return type(one) in _PLAIN and (one == other or (one != one and other != other))  # noqa: PLR0124 - NaN
