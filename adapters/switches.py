"""Switches of the process: kept from other people's code, and float32 in full for the judge.

They are torch's switches, NumPy's errors, warnings, and the working folder.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

# What a file may set for the whole process by being loaded; the rest is its model's to set.
OF_FILES = (
    "torch's default dtype",
    "torch's default device",
    "NumPy's errors",
    "the working folder",
    "warning filters",
)


@contextmanager
def switches_kept(names: Iterable[str] | None = None, put_back: list[str] | None = None) -> Iterator[None]:
    """Afterwards the switches of the process are as they were.

    Args:
        names: of those to keep; None: all.
        put_back: where the names of those go that were not as before.
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
    """In the block torch rounds float32 nowhere: neither to TF32 nor to bfloat16, whatever is set for the process."""
    with switches_kept(_PRECISIONS):
        older, newer = _PRECISIONS[:2], _PRECISIONS[2]
        if all(_read(name) is not None for name in older):  # torch asks that both ways say the same
            torch.set_float32_matmul_precision("highest")
            torch.backends.cudnn.allow_tf32 = False
        if _read(newer) is not None:
            _set_precisions((_EXACT,) * len(_places()))
        yield


def is_full_float32() -> bool:
    """Whether torch rounds float32 nowhere, as in a block of `full_float32`."""
    precisions = _read(_PRECISIONS[-1])
    if precisions is None:
        return torch.get_float32_matmul_precision() == "highest" and not torch.backends.cudnn.allow_tf32
    return all(each == _EXACT for each in precisions)


def _read(name: str) -> Any:
    """How a switch stands; None where torch will not say.

    Once anyone has set TF32 in the newer way (`torch.backends.cuda.matmul.fp32_precision`, from torch 2.9), the older
    way can no longer be asked; an older torch does not have the newer one.
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


_PRECISIONS = ("torch's precision of matrix products", "cuDNN's TF32", "torch's precision of float32")
_EXACT = "ieee"


def _places() -> tuple[Any, ...]:
    """What has a separate precision of float32."""
    cuda, mkldnn, cudnn = (getattr(torch.backends, name) for name in ("cuda", "mkldnn", "cudnn"))
    return cuda.matmul, mkldnn.matmul, mkldnn.conv, mkldnn.rnn, cudnn.conv, cudnn.rnn


def _set_precisions(precisions: tuple[str, ...]) -> None:
    for place, precision in zip(_places(), precisions, strict=True):
        if place.fp32_precision != precision:
            place.fp32_precision = precision


# How each is read and set; the newer way of TF32 last, because the older one sets it, too.
_SWITCHES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "torch's gradient mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "torch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch's number of threads": (torch.get_num_threads, torch.set_num_threads),
    "torch's deterministic mode": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    "torch's anomaly detection": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    "torch's default device": (
        torch.get_default_device,
        lambda device: torch.set_default_device(None if device.type == "cpu" else device),
    ),
    "cuDNN's flags": (_read_cudnn, _set_cudnn),
    "torch's precision of matrix products": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "cuDNN's TF32": (
        lambda: torch.backends.cudnn.allow_tf32,
        lambda allow: setattr(torch.backends.cudnn, "allow_tf32", allow),
    ),
    "torch's precision of float32": (lambda: tuple(place.fp32_precision for place in _places()), _set_precisions),
    "NumPy's errors": (np.geterr, lambda errors: np.seterr(**errors)),
    "the working folder": (os.getcwd, os.chdir),
    "warning filters": (lambda: list(warnings.filters), lambda _: None),  # `catch_warnings` puts them back
    "sys.argv": (lambda: list(sys.argv), lambda words: setattr(sys, "argv", words)),
}
