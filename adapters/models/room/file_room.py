"""Files that are no models, read in a room: what comes out are tensors, which the caller checks."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ....errors import ModelDied, Unavailable
from .isolating import Isolation
from .room import Room, limits_of
from .sandbox import visible_parts
from .server_process import server_for


def read_apart(
    function: Callable[..., list[Tensor]], values: Any, paths: Sequence[Path], how: Isolation, *types: torch.dtype
) -> list[Tensor]:
    """What a function of ours makes of JSON values and of files, in a strict sandbox that shows these files.

    Args:
        function: gives a tensor for each of the types.
        values: its arguments.
        paths: files and folders.
        how: what its process may use.
        *types: of the tensors.

    Raises:
        Unavailable: if its process ends, takes too long, or sends something else.
        DavylampError: what the function raises.
    """
    room = _FileRoom(paths, how)
    text = torch.frombuffer(bytearray(json.dumps(values).encode()), dtype=torch.uint8)
    where = f"{function.__module__}:{function.__qualname__}"
    try:
        tensors = room.ask("read", [text], function=where, folder=str(Path.cwd()))[1]
        if [each.dtype for each in tensors] != [*types]:
            raise room.refuse("expected images")
    except ModelDied as error:
        raise Unavailable(f"could not read the data: {str(error).removeprefix('the model ')}") from None
    finally:
        room.close()
    return tensors


class _FileRoom(Room):
    """A room without a model.

    Args:
        paths: files and folders that are seen in it.
        isolation: what it may use.
    """

    def __init__(self, paths: Sequence[Path], isolation: Isolation):
        super().__init__(", ".join(path.name for path in paths), "cpu", False, isolation)
        self._paths = paths

    def _open(self) -> None:
        self._server = server_for(os.getpid(), True, visible_parts(self._paths, strict=True))
        self._wire, self._number = self._server.open_room(limits_of(self.isolation, self.device))
        self.facts = {}
