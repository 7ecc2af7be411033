"""The attacks that SecML-Torch implements itself. They are imported without the libraries that it wraps.

This module is imported only when an attack runs, so that listing the catalogue loads no library.
"""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec

from torch import Tensor

_WRAPPED = ("adv_lib", "foolbox")


@contextmanager
def _without_wrappers() -> Iterator[None]:
    """Context manager for importing SecML-Torch. It hides the wrapped libraries, so that they are not imported."""
    find = importlib.util.find_spec

    def find_others(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name in _WRAPPED else find(name, package)

    importlib.util.find_spec = find_others
    try:
        yield
    finally:
        importlib.util.find_spec = find


with _without_wrappers():
    from secmlt.adv.evasion.ddn import DDNNative
    from secmlt.adv.evasion.fmn import FMNNative
    from secmlt.adv.evasion.pgd import PGDNative
    from secmlt.models.pytorch.base_pytorch_nn import BasePyTorchClassifier

__all__ = ["DDNNative", "DeviceBridgingClassifier", "FMNNative", "PGDNative"]


class DeviceBridgingClassifier(BasePyTorchClassifier):
    """A model that moves images to its own device, and its outputs back to the device of the images."""

    def _decision_function(self, x: Tensor) -> Tensor:
        return self._model(x.to(self._get_device())).to(x.device)
