"""Checkpoint file from which an interrupted training resumes."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from ...adapters.tensor_file import read_tensor_file
from ...adapters.user_code_guard import one_line
from ...errors import InvalidInput, Unavailable
from ..store.atomic_files import replace_file

_EVERY = 30.0  # seconds


class Checkpoint:
    """The checkpoint file of one training.

    Args:
        path: path of the file.
        spec: description of the training as JSON types. A training with a different description cannot resume from the
            file.
        every: number of seconds between checkpoints within an epoch. 0 writes a checkpoint after each batch.
        clock: function that returns the time in seconds, from a monotonic clock.
    """

    def __init__(
        self, path: Path, spec: Mapping[str, Any], every: float = _EVERY, clock: Callable[[], float] = time.monotonic
    ):
        self.path, self.spec = path, json.dumps(spec, sort_keys=True)
        self._every, self._clock, self._last = every, clock, clock()

    def read(self) -> dict[str, Any] | None:
        """Return the state that was stored with `write`; None if the file does not exist.

        Raises:
            InvalidInput: If the checkpoint belongs to a different training.
            Unavailable: If the file cannot be read.
        """
        if not self.path.exists():
            return None
        stored = read_tensor_file(self.path, "a checkpoint", "delete it")
        try:
            spec, state = stored["spec"], stored["state"]
        except (KeyError, TypeError) as error:
            raise Unavailable(f"{self.path} is not a checkpoint; delete it") from error
        if spec != self.spec:
            other = _difference(json.loads(spec), json.loads(self.spec))
            raise InvalidInput(
                f"{self.path} is the checkpoint of a training with other settings ({other}); delete "
                "it, or choose a different -o"
            )
        return state

    @property
    def is_due(self) -> bool:
        """Whether at least `every` seconds have passed since the last checkpoint."""
        return self._clock() - self._last >= self._every

    def write(self, state: Mapping[str, Any]) -> None:
        """Store the state of the training in the file, replacing the earlier state.

        Raises:
            Unavailable: If the file cannot be written.
        """
        try:
            replace_file(self.path, lambda draft: torch.save({"spec": self.spec, "state": dict(state)}, draft))
        except (OSError, RuntimeError) as error:
            raise Unavailable(f"could not write {self.path} ({one_line(error)})") from error
        self._last = self._clock()

    def remove(self) -> None:
        """Delete the checkpoint file, after the training is finished."""
        self.path.unlink(missing_ok=True)


def _difference(stored: Any, wanted: Any, name: str = "") -> str:
    """Describe the first difference of two descriptions, such as "learning_rate 0.1, not 0.01"."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        for key in {**stored, **wanted}:
            if stored.get(key) != wanted.get(key):
                return _difference(stored.get(key), wanted.get(key), key)
    return f"{name} {stored}, not {wanted}"
