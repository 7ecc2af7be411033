"""The attack functions of adversarial-library. They are imported without visdom, which often cannot be installed.

This module is imported only when an attack runs, so that listing the catalogue loads no library.
"""

import importlib.util
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def _without_visdom() -> Iterator[None]:
    """Context manager for importing adv-lib without warnings. If visdom is missing, an empty module replaces it."""
    missing = "visdom" not in sys.modules and importlib.util.find_spec("visdom") is None
    if missing:
        sys.modules["visdom"] = ModuleType("visdom")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if missing:
            del sys.modules["visdom"]


with _without_visdom():
    from adv_lib.attacks import (
        alma,
        apgd,
        apgd_targeted,
        carlini_wagner_l2,
        carlini_wagner_linf,
        ddn,
        df,
        fab,
        fga,
        fmn,
        pdgd,
        pdpgd,
        perc_al,
        pgd_linf,
        sdf,
        sigma_zero,
        str_attack,
        tr,
        vfga,
    )
    from adv_lib.attacks.auto_pgd import minimal_apgd

__all__ = [
    "alma",
    "apgd",
    "apgd_targeted",
    "carlini_wagner_l2",
    "carlini_wagner_linf",
    "ddn",
    "df",
    "fab",
    "fga",
    "fmn",
    "minimal_apgd",
    "pdgd",
    "pdpgd",
    "perc_al",
    "pgd_linf",
    "sdf",
    "sigma_zero",
    "str_attack",
    "tr",
    "vfga",
]
