"""Context managers that restore global settings after other code has run, and that set the precision of computations.

The global settings are those of torch, NumPy's error handling, warnings, the working folder, and the signal handlers
and alarms of the process.
"""

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch

P = ParamSpec("P")
R = TypeVar("R")

# What a file may set for the whole process by being loaded; the rest is its model's to set.
OF_FILES = (
    "torch's default dtype",
    "torch's default device",
    "NumPy's errors",
    "the working folder",
    "warning filters",
)


@contextmanager
def preserve_torch_state(names: Iterable[str] | None = None, put_back: list[str] | None = None) -> Iterator[None]:
    """Context manager that restores the global settings of the process on exit.

    Args:
        names: names of the settings to restore. None for all settings.
        put_back: list to which the name of each setting is appended that the block had changed. None for no list.
    """
    put_back = [] if put_back is None else put_back
    with warnings.catch_warnings():
        before = {name: _read(name) for name in (_SWITCHES if names is None else names)}
        try:
            yield
        finally:
            for name, value in before.items():
                if value is not None and _read(name) not in (value, None):
                    _SWITCHES[name][1](value)
                    put_back.append(name)


@contextmanager
def full_float32() -> Iterator[None]:
    """Context manager that makes torch compute in full float32, without TF32 and autocast."""
    global _exact_blocks  # noqa: PLW0603 - of the process, as the switches are
    if (
        _exact_blocks and current_precision() == "float32"
    ):  # the judge calls this often; the surrounding block restores everything
        yield
        return
    with preserve_torch_state(_PRECISIONS), no_autocast():
        _set_all("highest", allow_tf32=False, precision=_EXACT)
        _exact_blocks += 1
        try:
            yield
        finally:
            _exact_blocks -= 1


@contextmanager
def tf32() -> Iterator[None]:
    """Context manager that lets NVIDIA GPUs round the factors of convolutions and matrix products to TF32."""
    with preserve_torch_state(_PRECISIONS), no_autocast():
        _set_all("high", allow_tf32=True, precision=_ROUNDED)
        yield


@contextmanager
def no_autocast() -> Iterator[None]:
    """Context manager that switches torch's autocast off."""
    with ExitStack() as off:
        for kind in _autocast_now():
            off.enter_context(torch.autocast(kind, enabled=False))
        yield


def attack_precision(precision: str | None) -> AbstractContextManager[None]:
    """Return the context manager in which an attack runs in a precision, one of `parameters.PRECISIONS`.

    If the precision is None, the context manager changes nothing. For bfloat16, autocast is switched off, because
    `model_autocast` switches it on for each call of the model only.
    """
    ways = {"float32": full_float32, "tf32": tf32, "bfloat16": no_autocast}
    return ways.get(precision or "", nullcontext)()


def model_autocast(precision: str | None, device: torch.device) -> AbstractContextManager[object]:
    """Return the context manager for a single call of a model. For the precision bfloat16, it switches autocast on.

    Computations of the attack outside the model are thus not rounded to bfloat16.
    """
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()


def is_autocast() -> bool:
    """Whether torch's autocast is enabled."""
    return bool(_autocast_now())


def current_precision() -> str | None:
    """Return the name of the precision that torch currently uses. None if the settings match no named precision.

    The name is sent to worker processes, which then compute in the same precision.
    """
    if on := _autocast_now():
        return "bfloat16" if torch.get_autocast_dtype(on[0]) == torch.bfloat16 else None
    precisions = _read(_PRECISIONS[-1])
    if precisions is None:
        products, convolutions = torch.get_float32_matmul_precision() != "highest", torch.backends.cudnn.allow_tf32
        exact, rounded = not (products or convolutions), products and convolutions
    else:
        exact = all(each == _EXACT for each in precisions)
        rounded = all(precisions[place] == _ROUNDED for place in _OF_CUDA)
    return "float32" if exact else "tf32" if rounded else None


def _read(name: str) -> Any:
    """Return the value of a setting. None if torch cannot read the value.

    After TF32 has been set with the newer interface (`torch.backends.cuda.matmul.fp32_precision`, from torch 2.9), the
    older interface can no longer be read. Older versions of torch lack the newer interface.
    """
    try:
        return _SWITCHES[name][0]()
    except (RuntimeError, AttributeError, FileNotFoundError):  # the last: the folder was deleted
        return None


def _read_cudnn() -> tuple[bool, ...]:
    cudnn = torch.backends.cudnn
    return cudnn.benchmark, cudnn.deterministic, cudnn.enabled


def _set_cudnn(flags: tuple[bool, ...]) -> None:
    cudnn = torch.backends.cudnn
    cudnn.benchmark, cudnn.deterministic, cudnn.enabled = flags


_INFERENCE: list[Any] = []  # contexts that stay open, in place of those left open by other code
_SIGNALS = [getattr(signal, name) for name in ("SIGALRM", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def _set_inference(on: bool) -> None:
    """Set torch's inference mode without a `with` block, by entering its context manager."""
    _INFERENCE.append(torch.inference_mode(on))
    _INFERENCE[-1].__enter__()


def _read_autocast() -> tuple[tuple[str, Any], ...]:
    return tuple((kind, torch.get_autocast_dtype(kind)) for kind in _autocast_now())


def _set_autocast(kinds: tuple[tuple[str, Any], ...]) -> None:
    for kind in {*_autocast_now(), *dict(kinds)}:
        torch.set_autocast_enabled(kind, kind in dict(kinds))
    for kind, dtype in kinds:
        torch.set_autocast_dtype(kind, dtype)


def _close_modes(count: int) -> None:
    while torch._C._len_torch_function_stack() > count:
        torch._C._pop_torch_function_stack()


class _Moment(float):
    """Time of the monotonic clock at which an alarm of the process is due. 0 for no alarm."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and abs(self - other) < 0.1

    __hash__ = float.__hash__


def _read_alarm() -> _Moment:
    left = signal.getitimer(signal.ITIMER_REAL)[0] if hasattr(signal, "getitimer") else 0.0
    return _Moment(left and time.monotonic() + left)


def _set_alarm(moment: _Moment) -> None:
    signal.setitimer(signal.ITIMER_REAL, moment and max(moment - time.monotonic(), 1e-3))


def _set_handlers(handlers: tuple[Any, ...]) -> None:
    if threading.current_thread() is threading.main_thread():  # no other may
        for number, handler in zip(_SIGNALS, handlers, strict=True):
            if handler is not None:  # else it is not Python's
                signal.signal(number, handler)


_PRECISIONS = ("torch's precision of matrix products", "cuDNN's TF32", "torch's precision of float32")
_EXACT, _ROUNDED = "ieee", "tf32"
_exact_blocks = 0  # of `full_float32` that are open
_OF_CUDA = (0, 4, 5)  # among `_places`
_WITH_AUTOCAST = ("cpu", "cuda", "mps", "xpu")


def _places() -> tuple[Any, ...]:
    cuda, mkldnn, cudnn = (getattr(torch.backends, name) for name in ("cuda", "mkldnn", "cudnn"))
    return cuda.matmul, mkldnn.matmul, mkldnn.conv, mkldnn.rnn, cudnn.conv, cudnn.rnn


def _autocast_now() -> list[str]:
    kinds = []
    for kind in _WITH_AUTOCAST:
        with suppress(RuntimeError):  # a torch that does not support the device type
            kinds += [kind] if torch.is_autocast_enabled(kind) else []
    return kinds


def _set_all(products: str, *, allow_tf32: bool, precision: str) -> None:
    """Set all of torch's settings of float32 precision. Torch requires that the older and the newer settings agree."""
    if all(_read(name) is not None for name in _PRECISIONS[:2]):
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = allow_tf32
    if _read(_PRECISIONS[2]) is not None:
        _set_precisions((precision,) * len(_places()))


def _set_precisions(precisions: tuple[str, ...]) -> None:
    """Set the precision of each backend. A backend that inherits its parent's precision continues to inherit it."""
    for place, precision in zip(_places(), precisions, strict=True):
        if place.fp32_precision != precision:
            place.fp32_precision = "none"
        if place.fp32_precision != precision:
            place.fp32_precision = precision


# How each is read and set. The newer TF32 setting comes last, because the older one also sets it.
_SWITCHES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "torch's gradient mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "torch's inference mode": (torch.is_inference_mode_enabled, _set_inference),
    "torch's autocast": (_read_autocast, _set_autocast),
    "torch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch's number of threads": (torch.get_num_threads, torch.set_num_threads),
    "torch's deterministic mode": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    "torch's anomaly detection": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    "torch's default device": (
        torch.get_default_device,
        lambda device: torch.set_default_device(None if device.type == "cpu" else device),
    ),
    "torch's function modes": (torch._C._len_torch_function_stack, _close_modes),
    "alarms": (_read_alarm, _set_alarm),
    "handlers of signals": (lambda: tuple(map(signal.getsignal, _SIGNALS)), _set_handlers),
    "cuDNN's flags": (_read_cudnn, _set_cudnn),
    "torch's precision of matrix products": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "cuDNN's TF32": (
        lambda: torch.backends.cudnn.allow_tf32,
        lambda allow: setattr(torch.backends.cudnn, "allow_tf32", allow),
    ),
    "torch's precision of float32": (lambda: tuple(place.fp32_precision for place in _places()), _set_precisions),
    "NumPy's errors": (np.geterr, lambda errors: np.seterr(**errors)),
    "the working folder": (os.getcwd, os.chdir),
    "warning filters": (lambda: list(warnings.filters), lambda _: None),  # `catch_warnings` restores them
    "sys.argv": (lambda: list(sys.argv), lambda words: setattr(sys, "argv", words)),
}


def with_gradients(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that enables gradients while it runs, even if it is called inside `torch.no_grad`.

    The function can also be called inside `torch.inference_mode`. Tensors made in inference mode are copied, because
    autograd cannot use them.
    """

    @wraps(function)
    def allowed(*arguments: P.args, **options: P.kwargs) -> R:
        with torch.inference_mode(False), torch.enable_grad():
            return function(*map(_usable, arguments), **{name: _usable(each) for name, each in options.items()})  # type: ignore[arg-type]

    return allowed


def _usable(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) and value.is_inference() else value
