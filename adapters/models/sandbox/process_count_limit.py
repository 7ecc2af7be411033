"""A hard limit of the processes and threads of a sandbox: a control group, where this user may make one.

`RLIMIT_NPROC` does not hold for root, and whoever counts processes by looking at them comes too late on a busy machine:
a program that forks without end takes all of it first.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")
_GROUPS = Path("/proc/self/cgroup")
_NAME = "davylamp"
# The shell enters the group before it becomes the command: nothing is forked outside of it.
_ENTER = 'echo $$ > "$0" && exec "$@"'
_numbers = count()


class TaskLimit:
    """A control group for one command; `is_hard` says whether there is one.

    Args:
        most: processes and threads, together.
    """

    def __init__(self, most: int):
        self._place: Path | None = None
        for parent in _parents():
            place = parent / f"{_NAME}-{os.getpid()}-{next(_numbers)}"
            try:
                _sweep(parent)
                place.mkdir()
                with (place / "pids.max").open("r+") as limit:  # is there only where processes are counted
                    limit.write(f"{most}\n")
            except OSError:
                with suppress(OSError):
                    place.rmdir()
                continue
            self._place = place
            return

    @property
    def is_hard(self) -> bool:
        """Whether the system keeps the limit; else it is for others to look."""
        return self._place is not None

    def limited(self, command: Sequence[str]) -> list[str]:
        """The command inside of the group."""
        if self._place is None:
            return [*command]
        return ["/bin/sh", "-c", _ENTER, str(self._place / "cgroup.procs"), *command]

    def remove(self) -> None:
        """Remove the group, once its processes have ended."""
        if self._place is not None:
            with suppress(OSError):
                self._place.rmdir()


def _parents() -> list[Path]:
    """Where a group may be made: below this process's group, by either version of control groups, and at the top."""
    places = []
    with suppress(OSError):
        for line in _GROUPS.read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            group = path.lstrip("/")
            if "pids" in controllers.split(","):
                places += [_MOUNT / "pids" / group, _MOUNT / "pids"]
            elif number == "0" and not controllers:
                places += [_MOUNT / group, _MOUNT]
    return [place for place in dict.fromkeys(places) if os.access(place, os.W_OK)]


def _sweep(parent: Path) -> None:
    """Remove groups of processes that were killed; those with somebody in them stay."""
    for place in parent.glob(f"{_NAME}-*-*"):
        process = place.name.split("-")[1]
        if process.isdigit() and not Path("/proc", process).exists():
            with suppress(OSError):
                place.rmdir()
