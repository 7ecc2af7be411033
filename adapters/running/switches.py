"""What of torch a library call may not change: gradients, types, devices, determinism, threads, cuDNN, TF32."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def switches_kept() -> Iterator[None]:
    """Afterwards torch's global switches are as they were: types, devices, determinism, threads, cuDNN, TF32."""
    before = {name: _read(name) for name in _SWITCHES}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is not None and _read(name) not in (value, None):
                _SWITCHES[name][1](value)


def _read(name: str) -> Any:
    """How a switch stands; None where torch will not say.

    Once anyone has set TF32 in the newer way (`torch.backends.cuda.matmul.fp32_precision`, from torch 2.9), the older
    way can no longer be asked; an older torch does not have the newer one.
    """
    try:
        return _SWITCHES[name][0]()
    except (RuntimeError, AttributeError):
        return None


def _read_cudnn() -> tuple[bool, ...]:
    cudnn = torch.backends.cudnn
    return cudnn.benchmark, cudnn.deterministic, cudnn.enabled


def _set_cudnn(flags: tuple[bool, ...]) -> None:
    cudnn = torch.backends.cudnn
    cudnn.benchmark, cudnn.deterministic, cudnn.enabled = flags


def _places() -> tuple[Any, ...]:
    """What has a separate precision of float32."""
    cuda, mkldnn, cudnn = (getattr(torch.backends, name) for name in ("cuda", "mkldnn", "cudnn"))
    return cuda.matmul, mkldnn.matmul, cudnn.conv, cudnn.rnn


def _set_precisions(precisions: tuple[str, ...]) -> None:
    for place, precision in zip(_places(), precisions, strict=True):
        if place.fp32_precision != precision:
            place.fp32_precision = precision


# How each is read and set; the newer way of TF32 last, because the older one sets it, too.
_SWITCHES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
    "dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "deterministic": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    "anomaly": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    "device": (
        torch.get_default_device,
        lambda device: torch.set_default_device(None if device.type == "cpu" else device),
    ),
    "cudnn": (_read_cudnn, _set_cudnn),
    "matmul": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "convolutions": (
        lambda: torch.backends.cudnn.allow_tf32,
        lambda allow: setattr(torch.backends.cudnn, "allow_tf32", allow),
    ),
    "precisions": (lambda: tuple(place.fp32_precision for place in _places()), _set_precisions),
}
