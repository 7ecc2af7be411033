"""A module put back as it was: after library calls, after a while of being frozen, after a whole evaluation."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...errors import ModelFailed, ModelSpoiled
from .held import held_by, hidden_in, torchs_for

_PATIENCE = 50  # a check is made as soon as it has cost less than a fiftieth of the time since the last one
_ABSENT = object()
_EMPTY: dict[Any, Any] = {}  # most tables are: hundreds a model, which every run looks at
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # as long as an element, in bytes
# Every dictionary that torch keeps in a module: parameters, buffers, sub-modules and all kinds of hooks.
_TABLES = tuple(name for name, value in vars(nn.Module()).items() if isinstance(value, dict))


class StateGuard:
    """The state of a model as it was, to be compared with and put back after library calls.

    Compared are, of every module: its class, mode, an assigned `forward`, hooks, and which parameters, buffers and
    sub-modules it has; of every tensor among them, or among the module's attributes and in lists there, its values,
    dtype and whether it requires gradients; and all that the model computes with beside that: see `held_by`. What the
    model itself changes when it is asked is its business: it may count its calls.

    Args:
        model: what is guarded; must not change in between by other hands.
    """

    def __init__(self, model: nn.Module):
        start = time.perf_counter()
        modules, tensors = hidden_in(model)
        self._modules = [_Module(module) for module in modules]
        self._tensors = {id(tensor): _Copy(tensor) for module in self._modules for tensor in module.tensors()}
        self._tensors |= {id(tensor): _Copy(tensor) for tensor in tensors}
        self._held, self._torchs = held_by(modules), torchs_for(modules)
        self._cost, self._last = time.perf_counter() - start, time.perf_counter()
        self._drifting: set[int] = set()  # tensors that the model itself changes whenever it is asked

    @property
    def is_due(self) -> bool:
        """Whether enough has happened since the last check that another costs next to nothing."""
        return time.perf_counter() - self._last > _PATIENCE * self._cost

    def restore(self, ask: Callable[[], Tensor]) -> bool:
        """Put back what is not as it was; whether anything was not.

        What the model changes by itself is not put down to the library: `ask` it once, and see. Nor is an attribute
        that makes no difference to the answers, as a list of what a hook has seen: it stays.

        Args:
            ask: a forward pass of the model.
        """
        start = time.perf_counter()
        changed = self._restore_modules(plain=False) | self._restore_held(ask)
        drifted = self._restore_tensors()
        if drifted - self._drifting:
            ask()
            self._drifting |= self._restore_tensors()
            changed |= bool(drifted - self._drifting)
        self._cost, self._last = time.perf_counter() - start, time.perf_counter()
        return changed

    def restore_silently(self) -> None:
        """Put back what is not as it was, whoever changed it; the model is not asked."""
        self._restore_modules(plain=True)
        self._restore_tensors()

    def _restore_modules(self, *, plain: bool = True) -> bool:
        changed = [module.restore(plain=plain) for module in self._modules]
        return any([*changed, *(each.put_back() for each in self._torchs)])

    def _restore_held(self, ask: Callable[[], Tensor]) -> bool:
        moved = {held: differing for held in self._held if (differing := held.moved())}
        if not moved:
            return False
        answers = answers_of(ask)
        for held, differing in moved.items():
            held.leave(differing)
        differing = {held: held.moved() for held in moved}
        put_back = [held.put_back() for held in moved]
        changed = any(put_back) and not same_answers(answers, answers_of(ask))
        for held, values in differing.items() if not changed else ():
            held.put(values)
        return changed

    def _restore_tensors(self) -> set[int]:
        replaced = {key for key, copy in self._tensors.items() if copy.restore()}
        suspects = _of_other_bits((key, copy.tensor.data, copy.data) for key, copy in self._tensors.items())
        return replaced | {key for key in suspects if self._tensors[key].restore_values()}


class _Module:
    """One module's structure, shared with nothing that a library can reach."""

    def __init__(self, module: nn.Module):
        self.module, self.kind, self.training = module, type(module), module.training
        self.forward = module.__dict__.get("forward", _ABSENT)
        attributes = module.__dict__
        self.tables: dict[str, dict[Any, Any]] = {  # those of TorchScript are no dictionaries
            name: dict(attributes[name]) if attributes[name] else _EMPTY
            for name in _TABLES
            if isinstance(attributes.get(name), dict)
        }
        self.plain = {name: value for name, value in module.__dict__.items() if isinstance(value, Tensor)}

    def tensors(self) -> Iterator[Tensor]:
        """Parameters, buffers and tensors that are plain attributes."""
        yield from self.module.parameters(recurse=False)
        yield from self.module.buffers(recurse=False)
        yield from self.plain.values()

    def restore(self, *, plain: bool = True) -> bool:
        """Put back the structure, and `plain` attributes that are tensors; whether it was another."""
        now, changed = self.module.__dict__, type(self.module) is not self.kind
        if changed:
            self.module.__class__ = self.kind
        if self.module.training is not self.training:
            self.module.training, changed = self.training, True
        if now.get("forward", _ABSENT) is not self.forward:
            changed = True
            if self.forward is _ABSENT:
                del now["forward"]
            else:
                now["forward"] = self.forward
        for name, table in self.tables.items():
            if (table or now[name]) and not _same(now[name], table):
                now[name].clear()  # in place: handles of hooks refer to it
                now[name].update(table)
                changed = True
        for name, tensor in self.plain.items() if plain else ():
            if now.get(name) is not tensor:
                now[name], changed = tensor, True
        return changed


class _TensorRef:
    """Where the values of one tensor lie, and its gradient; the values themselves are not copied."""

    def __init__(self, tensor: Tensor):
        self.tensor, self.storage = tensor, tensor.data
        self.requires_grad, self.grad = tensor.requires_grad, tensor.grad if tensor.is_leaf else None
        self.gradient = None if self.grad is None else self.grad.detach().clone()

    @torch.no_grad()
    def restore(self) -> bool:
        """Put back what is not as it was; whether anything was not that the model computes with."""
        tensor, changed = self.tensor, False
        if tensor.is_leaf and tensor.requires_grad is not self.requires_grad:
            tensor.requires_grad_(self.requires_grad)
            changed = True
        now, before = tensor.data, self.storage
        if now.data_ptr() != before.data_ptr() or now.shape != before.shape or now.dtype != before.dtype:
            tensor.data = before  # another tensor was put in its place, or it was moved
            changed = True
        if tensor.is_leaf and tensor.grad is not self.grad:
            tensor.grad = self.grad  # no change of the model: nothing is computed from it
        if self.grad is not None and self.gradient is not None and not _equal(self.grad, self.gradient):
            self.grad.copy_(self.gradient)
        return changed


class _Copy(_TensorRef):
    """The values of one tensor, too; they are put back by themselves."""

    def __init__(self, tensor: Tensor):
        super().__init__(tensor)
        self.data = tensor.detach().clone()

    @torch.no_grad()
    def restore_values(self) -> bool:
        """Put back the values; whether they were others."""
        changed = not _equal(self.tensor.data, self.data)
        if changed:
            self.tensor.data.copy_(self.data)
        return changed


def _same(now: Any, before: dict[Any, Any]) -> bool:
    return len(now) == len(before) and all(now.get(name, _ABSENT) is value for name, value in before.items())


def _of_other_bits(pairs: Iterable[tuple[int, Tensor, Tensor]]) -> list[int]:
    """Keys of the pairs that may differ. Every answer of a GPU is waited for: there one is about all of its tensors."""
    suspects: list[int] = []
    flags: dict[torch.device, list[tuple[int, Tensor]]] = {}
    for key, now, before in pairs:
        word = _WORDS.get(now.element_size())
        if now.device.type == "cpu" or now.layout != torch.strided or now.is_quantized or word is None:
            suspects.append(key)
        else:
            flags.setdefault(now.device, []).append((key, (now.view(word) != before.view(word)).any()))
    for of_device in flags.values():
        differ = torch.stack([flag for _, flag in of_device]).tolist()
        suspects += [key for (key, _), other in zip(of_device, differ, strict=True) if other]
    return suspects


def _equal(a: Tensor, b: Tensor) -> bool:
    """Bit by bit, so that a NaN equals itself."""
    if torch.equal(a, b):
        return True
    return bool(((a == b) | (a.isnan() & b.isnan())).all()) if a.is_floating_point() or a.is_complex() else False


def answers_of(ask: Callable[[], Tensor]) -> Tensor | None:
    """What a model answers; None if it fails."""
    try:
        return ask().detach()
    except ModelFailed:
        return None


def same_answers(one: Tensor | None, other: Tensor | None, rounding: float = 1e-4) -> bool:
    """Whether answers are the same but for `rounding`, relative to the largest: a GPU asked again may do so."""
    if one is None or other is None or one.shape != other.shape:
        return one is other
    close = (one - other).abs() <= rounding * one.abs().amax(1, keepdim=True)
    return bool((close | (one == other) | (~one.isfinite() & ~other.isfinite())).all())


class ChangeByAttack(NamedTuple):
    """What could not be put back: whose doing it was, images (n, C, H, W), and the answers (n, K) before it."""

    attack: str
    inputs: Tensor
    answers: Tensor


def is_changed(classifier: Any, before: ChangeByAttack) -> bool:
    """Whether a classifier answers otherwise than before, whatever it is asked about beside."""
    return not same_answers(before.answers, answers_of(lambda: classifier.predict_logits(before.inputs)), 1e-2)


def check_unchanged(classifier: Any) -> None:
    """Raise ModelSpoiled if an attack has changed a classifier, or the process, and it still answers otherwise."""
    change: ChangeByAttack | None = classifier.changed_by
    if change is not None and is_changed(classifier, change):
        raise ModelSpoiled(
            f"the model {classifier.name} answers otherwise since {change.attack}, in a way that could not be put "
            "back: load it again, in a new process; nothing more is measured with it"
        )
    if change is not None:
        classifier.changed_by = None


def state_modes(module: nn.Module) -> None:
    """Give `training` to modules without: those of `torch.jit.freeze`, which is for evaluation mode alone."""
    for part in module.modules():
        if not hasattr(part, "training"):
            part.training = False


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """In the block a module is in evaluation mode and no parameter requires gradients; then both are as they were.

    Where the module's class overrides `train` (one that merges weights), it is called as torch would.
    """
    modes = [(part, part.training) for part in module.modules()]
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad and parameter.is_leaf]
    try:
        module.eval()
        for parameter in trained:
            parameter.requires_grad_(False)
        yield
    finally:
        for part, training in modes:
            if training and type(part).train is not nn.Module.train:
                part.train()
        for part, training in modes:
            if part.training is not training:
                part.training = training
        for parameter in trained:
            parameter.requires_grad_(True)


@contextmanager
def preserve_module_state(module: nn.Module) -> Iterator[None]:
    """After the block the module is as it was, but for the values of its weights and buffers, which are not copied.

    That is: sub-modules, parameters and buffers; hooks, modes, an assigned `forward`; for every tensor its device,
    layout, dtype, whether it requires gradients, and `.grad`. Of a tensor that is moved in the block, the memory at
    its old place is kept meanwhile.
    """
    state_modes(module)
    parts = [_Module(part) for part in module.modules()]
    places = {id(tensor): _TensorRef(tensor) for part in parts for tensor in part.tensors()}
    try:
        yield
    finally:
        for part in parts:
            part.restore()
        for place in places.values():
            place.restore()
