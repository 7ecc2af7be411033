"""Random state around a library call: fixed by a seed inside, exactly as it was afterwards."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed Python, NumPy and torch (CPU and every GPU) with `seed`; restore all of their states on the way out.

    GPUs that this process has not begun to use are left alone: to look at their generators would set up each of them,
    in every worker, and no child could use them any more.
    """
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=devices):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - ART and torchattacks draw from the global generator
        _seed_torch(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


def _seed_torch(seed: int) -> None:
    if torch.cuda.is_initialized() or torch.mps.is_available():
        torch.manual_seed(seed)
    else:  # where nothing else is in use torch.manual_seed writes down a stack trace for each device that may come
        torch.default_generator.manual_seed(seed)


def call_seed(seed: int, first_image: int, restart: int) -> int:
    """Seed of one library call: `seed` itself for the first batch of the first run, else mixed with its place.

    The place is the position of the call's first image in the data set, so that an attack that takes one image at a
    time does not give every image the same noise.
    """
    if first_image == 0 and restart == 0:
        return seed
    return int(np.random.SeedSequence([seed, first_image, restart]).generate_state(1)[0])
