"""Where a training stands, in a file that is written whole or not at all, so that a killed one goes on from there."""

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
    """The file of a training that is not finished.

    Args:
        path: of the file.
        spec: what the training is, as JSON has it: another one cannot go on from here.
        every: seconds between two checkpoints inside an epoch; 0: after each batch.
        clock: seconds since some moment.
    """

    def __init__(
        self, path: Path, spec: Mapping[str, Any], every: float = _EVERY, clock: Callable[[], float] = time.monotonic
    ):
        self.path, self.spec = path, json.dumps(spec, sort_keys=True)
        self._every, self._clock, self._last = every, clock, clock()

    def read(self) -> dict[str, Any] | None:
        """The state that was kept; None if there is none.

        Raises:
            InvalidInput: if it is of another training.
            Unavailable: if it cannot be read.
        """
        if not self.path.exists():
            return None
        stored = read_tensor_file(self.path, "a checkpoint", "delete it")
        try:
            spec, state = stored["spec"], stored["state"]
        except (KeyError, TypeError) as error:
            raise Unavailable(f"expected a checkpoint in {self.path}, got something else; delete it") from error
        if spec != self.spec:
            other = _difference(json.loads(spec), json.loads(self.spec))
            raise InvalidInput(f"{self.path} is of another training ({other}); delete it or choose another -o")
        return state

    @property
    def is_due(self) -> bool:
        """Whether the last one is old enough."""
        return self._clock() - self._last >= self._every

    def write(self, state: Mapping[str, Any]) -> None:
        """Keep a state: tensors, numbers, texts, lists and dicts of them.

        Raises:
            Unavailable: if it cannot be written.
        """
        try:
            replace_file(self.path, lambda draft: torch.save({"spec": self.spec, "state": dict(state)}, draft))
        except (OSError, RuntimeError) as error:
            raise Unavailable(f"could not write {self.path} ({one_line(error)})") from error
        self._last = self._clock()

    def remove(self) -> None:
        """The training is finished."""
        self.path.unlink(missing_ok=True)


def _difference(stored: Any, wanted: Any, name: str = "") -> str:
    """The first entry that differs: "learning_rate 0.1, not 0.01"."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        for key in {**stored, **wanted}:
            if stored.get(key) != wanted.get(key):
                return _difference(stored.get(key), wanted.get(key), key)
    return f"{name} {stored}, not {wanted}"
