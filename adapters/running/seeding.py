"""Seeds the global random generators for a library call, and restores them afterwards."""

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed Python, NumPy and torch (CPU and every GPU) inside the block, and restore their random states on exit.

    GPUs that this process does not use yet are skipped. Reading the state of such a GPU would initialise it in every
    worker, and no child process could use it afterwards.
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
    else:  # with no GPU in use; torch.manual_seed records a stack trace for each device that may follow
        torch.default_generator.manual_seed(seed)


class NotedSeedings:
    """Records which global generators of Python and NumPy are seeded or set by other code than `seeded`.

    A generator that gets its earlier state back, or the seed from `seeded`, counts as unchanged.
    """

    def __init__(self) -> None:
        self._harmless: dict[str, list[Any]] = {"Python's": [], "NumPy's": []}  # states that change nothing
        self._seeded: list[str] = []

    def take(self) -> list[str]:
        """Return the names of the generators that were recorded since the last call."""
        names, self._seeded = self._seeded, []
        return [f"the seed of {name} random generator" for name in names]

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Record calls in the block that seed or set the global generators of Python's `random` or of NumPy."""
        watched = [(random, "seed", "Python's"), (random, "setstate", "Python's")]
        watched += [(np.random, "seed", "NumPy's"), (np.random, "set_state", "NumPy's")]
        originals = [getattr(module, word) for module, word, _ in watched]
        try:
            for (module, word, name), original in zip(watched, originals, strict=True):
                setattr(module, word, self._noted(name, original))
            yield
        finally:
            for (module, word, _), original in zip(watched, originals, strict=True):
                setattr(module, word, original)

    def _noted(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*values: Any, **words: Any) -> Any:
            before = _state(name)
            result = original(*values, **words)
            if sys._getframe(1).f_globals.get("__name__") == __name__:
                self._harmless[name] = [_state(name)]
            elif name not in self._seeded:
                self._harmless[name].append(before)
                self._seeded += [] if _state(name) in self._harmless[name] else [name]
            elif _state(name) in self._harmless[name]:
                self._seeded.remove(name)
            return result

        return wrapped


def _state(name: str) -> Any:
    if name == "Python's":
        return random.getstate()
    state: Any = np.random.get_state()  # noqa: NPY002 - the generator that libraries seed
    return (state[1].tobytes(), state[2:]) if isinstance(state, tuple) else repr(state)  # a different generator


def call_seed(seed: int, first_image: int, restart: int) -> int:
    """Return the random seed of a library call.

    For the first batch of the first restart, it is `seed`. For other calls, it is a mixture of `seed`, the number of
    the restart and the index of the call's first image in the data set. Images that are attacked one at a time
    therefore get different noise.
    """
    if first_image == 0 and restart == 0:
        return seed
    return int(np.random.SeedSequence([seed, first_image, restart]).generate_state(1)[0])
