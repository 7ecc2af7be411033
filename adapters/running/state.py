"""What a library call may not change: the model's weights, buffers, modes, hooks and code, and torch's own switches."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

_PATIENCE = 50  # a check is made as soon as it has cost less than a fiftieth of the time since the last one
_ABSENT = object()
# Every dictionary that torch keeps in a module: parameters, buffers, sub-modules and all kinds of hooks.
_TABLES = tuple(name for name, value in vars(nn.Module()).items() if isinstance(value, dict))


class StateGuard:
    """The state of a model as it was, to be compared with and put back after library calls.

    Compared are, of every module: its class, mode, an assigned `forward`, hooks, and which parameters, buffers and
    sub-modules it has; of every tensor among them, or among the module's attributes, its values, dtype and whether it
    requires gradients. Other plain attributes are the model's business: a model may count its calls.

    Args:
        model: what is guarded; must not change in between by other hands.
    """

    def __init__(self, model: nn.Module):
        start = time.perf_counter()
        self._modules = [_Module(module) for module in model.modules()]
        self._tensors = {id(tensor): _Copy(tensor) for module in self._modules for tensor in module.tensors()}
        self._cost, self._last = time.perf_counter() - start, time.perf_counter()
        self._drifting: set[int] = set()  # tensors that the model itself changes whenever it is asked

    @property
    def is_due(self) -> bool:
        """Whether enough has happened since the last check that another costs next to nothing."""
        return time.perf_counter() - self._last > _PATIENCE * self._cost

    def restore(self, ask: Callable[[], object]) -> bool:
        """Put back what is not as it was; whether anything was not.

        A tensor that the model changes by itself is not put down to the library: `ask` it once, and see.

        Args:
            ask: a forward pass of the model.
        """
        start = time.perf_counter()
        changed = self._restore_modules()
        drifted = self._restore_tensors()
        if drifted - self._drifting:
            ask()
            self._drifting |= self._restore_tensors()
            changed |= bool(drifted - self._drifting)
        self._cost, self._last = time.perf_counter() - start, time.perf_counter()
        return changed

    def _restore_modules(self) -> bool:
        changed = [module.restore() for module in self._modules]
        return any(changed)

    def _restore_tensors(self) -> set[int]:
        return {key for key, copy in self._tensors.items() if copy.restore()}


class _Module:
    """One module's structure, shared with nothing that a library can reach."""

    def __init__(self, module: nn.Module):
        self.module, self.kind, self.training = module, type(module), module.training
        self.forward = module.__dict__.get("forward", _ABSENT)
        self.tables = {name: dict(module.__dict__[name]) for name in _TABLES if name in module.__dict__}
        self.plain = {name: value for name, value in module.__dict__.items() if isinstance(value, Tensor)}

    def tensors(self) -> Iterator[Tensor]:
        """Parameters, buffers and tensors that are plain attributes."""
        for table in (self.tables["_parameters"], self.tables["_buffers"], self.plain):
            yield from (tensor for tensor in table.values() if isinstance(tensor, Tensor))

    def restore(self) -> bool:
        """Put back the structure; whether it was another."""
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
            if not _same(now[name], table):
                now[name].clear()  # in place: handles of hooks refer to it
                now[name].update(table)
                changed = True
        for name, tensor in self.plain.items():
            if now.get(name) is not tensor:
                now[name], changed = tensor, True
        return changed


class _Copy:
    """The values of one tensor."""

    def __init__(self, tensor: Tensor):
        self.tensor, self.data, self.storage = tensor, tensor.detach().clone(), tensor.data
        self.requires_grad, self.grad = tensor.requires_grad, tensor.grad if tensor.is_leaf else None

    @torch.no_grad()
    def restore(self) -> bool:
        tensor, changed = self.tensor, False
        if tensor.is_leaf and tensor.requires_grad is not self.requires_grad:
            tensor.requires_grad_(self.requires_grad)
            changed = True
        if tensor.is_leaf and tensor.grad is not self.grad:
            tensor.grad = self.grad  # no change of the model: nothing is computed from it
        now = tensor.data
        if now.data_ptr() != self.storage.data_ptr() or now.shape != self.data.shape or now.dtype != self.data.dtype:
            tensor.data = self.storage  # another tensor was put in its place
            changed = True
        if not _equal(tensor.data, self.data):
            tensor.data.copy_(self.data)
            changed = True
        return changed


def _same(now: Any, before: dict[Any, Any]) -> bool:
    return len(now) == len(before) and all(now.get(name, _ABSENT) is value for name, value in before.items())


def _equal(a: Tensor, b: Tensor) -> bool:
    """Bit by bit, so that a NaN equals itself."""
    if torch.equal(a, b):
        return True
    return bool(((a == b) | (a.isnan() & b.isnan())).all()) if a.is_floating_point() or a.is_complex() else False


@contextmanager
def switches_kept() -> Iterator[None]:
    """Afterwards torch's global switches are as they were: gradients, types, devices, determinism, threads, cuDNN."""
    before = _read_switches()
    try:
        yield
    finally:
        for name, value in _read_switches().items():
            if value != before[name]:
                _SET[name](before[name])


def _set_cudnn(flags: tuple[bool, ...]) -> None:
    cudnn = torch.backends.cudnn
    cudnn.benchmark, cudnn.deterministic, cudnn.enabled = flags


def _read_switches() -> dict[str, Any]:
    cudnn = torch.backends.cudnn
    return {
        "gradients": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.get_deterministic_debug_mode(),
        "anomaly": torch.is_anomaly_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "device": torch.get_default_device(),
        "cudnn": (cudnn.benchmark, cudnn.deterministic, cudnn.enabled),
    }


_SET: dict[str, Callable[[Any], object]] = {
    "gradients": torch.set_grad_enabled,
    "dtype": torch.set_default_dtype,
    "threads": torch.set_num_threads,
    "deterministic": torch.set_deterministic_debug_mode,
    "anomaly": torch.autograd.set_detect_anomaly,
    "precision": torch.set_float32_matmul_precision,
    "device": lambda device: torch.set_default_device(None if device.type == "cpu" else device),
    "cudnn": _set_cudnn,
}
