"""Leave no trace: Pyro seeds global generators and keeps its parameters in one global store."""

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyro
import torch


@contextmanager
def isolated(seed: int) -> Iterator[None]:
    """Seed every generator that Pyro uses; put them and the parameter store back afterwards.

    Args:
        seed: random seed of Python, NumPy and torch.
    """
    state, numbers, python = pyro.get_param_store().get_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`torch.jit", category=FutureWarning)  # Pyro 1.9 still traces
        pyro.clear_param_store()
        pyro.set_rng_seed(seed)
        try:
            yield
        finally:
            pyro.clear_param_store()
            pyro.get_param_store().set_state(state)
            np.random.set_state(numbers)  # noqa: NPY002
            random.setstate(python)
