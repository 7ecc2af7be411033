"""Random state around a library call: fixed by a seed inside, exactly as it was afterwards."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

_WORDS = 624  # of the state of a Mersenne twister
_BLOCKS = 200  # states that are looked at together
_FOLLOWED = 600_000_000  # words: more than any attack on a few small images draws


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


class Generators(NamedTuple):
    """What tells drawing from the global generators apart from seeding them.

    `python` and `numpy` are the 624 words of their Mersenne twisters (none where NumPy's is another one), `torch` is
    the seed that its generator was last given.
    """

    python: tuple[int, ...]
    numpy: tuple[int, ...] | np.ndarray
    torch: int


def states_of_generators() -> Generators:
    """The states of Python's, NumPy's and torch's global generators; takes some 20 microseconds."""
    numpy: Any = np.random.get_state()  # noqa: NPY002
    words = numpy[1] if isinstance(numpy, tuple) else ()
    return Generators(random.getstate()[1][:_WORDS], words, torch.initial_seed())


def reseeded(before: Generators, after: Generators) -> list[str]:
    """The generators that were seeded or set between two states; those that were merely drawn from are not.

    A seed equal to the one that the generator has is no change.
    """
    twisters = {"Python's": (before.python, after.python), "NumPy's": (before.numpy, after.numpy)}
    names = [name for name, (start, end) in twisters.items() if not _drawn_to(np.asarray(start), np.asarray(end))]
    names += ["torch's"] if before.torch != after.torch else []
    return [f"the seed of {name} random generator" for name in names]


def _drawn_to(start: np.ndarray, end: np.ndarray) -> bool:
    """Whether a Mersenne twister gets from one state to another by drawing, which is followed for `_FOLLOWED` words."""
    if np.array_equal(start, end):
        return True
    if end.shape != (_WORDS,):
        return False
    twister = np.random.MT19937()
    twister.state = {"bit_generator": "MT19937", "state": {"key": start.astype(np.uint32), "pos": _WORDS}}
    wanted = _tempered(end.astype(np.uint32))
    for _ in range(_FOLLOWED // (_BLOCKS * _WORDS)):
        blocks = twister.random_raw(_BLOCKS * _WORDS).reshape(_BLOCKS, _WORDS)
        if (blocks[blocks[:, 0] == wanted[0]] == wanted).all(1).any():
            return True
    return False


def _tempered(words: np.ndarray) -> np.ndarray:
    """What a Mersenne twister makes of its words when they are drawn (Matsumoto and Nishimura 1998)."""
    words = words ^ (words >> 11)
    words = words ^ ((words << 7) & np.uint32(0x9D2C5680))
    words = words ^ ((words << 15) & np.uint32(0xEFC60000))
    return words ^ (words >> 18)


def call_seed(seed: int, first_image: int, restart: int) -> int:
    """Seed of one library call: `seed` itself for the first batch of the first run, else mixed with its place.

    The place is the position of the call's first image in the data set, so that an attack that takes one image at a
    time does not give every image the same noise.
    """
    if first_image == 0 and restart == 0:
        return seed
    return int(np.random.SeedSequence([seed, first_image, restart]).generate_state(1)[0])
