"""What of torch a library call may not change: gradients, types, devices, determinism, threads, cuDNN."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


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
