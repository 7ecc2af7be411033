"""Pyro's MCMC for a kernel that moves all its chains at once."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from pyro.infer import MCMC

from .gibbs import GridGibbs


class VectorizedMCMC(MCMC):
    """`pyro.infer.MCMC`, run once; samples, chains and diagnostics come out as those of several chains.

    Args:
        kernel: whose sites have the chains as first dimension.
        num_samples: sweeps of each chain that are kept.
        warmup_steps: sweeps of each chain that are thrown away.
        options: others of MCMC.
    """

    def __init__(self, kernel: GridGibbs, num_samples: int, warmup_steps: int, **options: Any):
        super().__init__(kernel, num_samples, warmup_steps, disable_progbar=True, transforms={}, **options)

    def run(self, *args: Any, **kwargs: Any) -> None:
        """Sample.

        Args:
            args: of the kernel's program.
            kwargs: of the kernel's program.
        """
        with _unlogged(), torch.inference_mode():
            super().run(*args, **kwargs)
        samples: Any = self._samples
        self._samples = {name: value[0].transpose(0, 1) for name, value in samples.items()}
        self.num_chains = self.kernel.chains
        self._diagnostics *= self.num_chains


@contextmanager
def _unlogged() -> Iterator[None]:
    """Pyro logs the diagnostics of every sweep to a progress bar that is off; a sweep is short beside that."""
    logger = logging.getLogger("pyro.infer.mcmc")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
