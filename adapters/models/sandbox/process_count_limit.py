"""Hard limit on the processes and threads of a sandbox, by a control group of Linux if this user may create one.

`RLIMIT_NPROC` does not apply to root. Counting the processes from outside is too slow: a program that forks endlessly
keeps the machine busy.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")
_GROUPS = Path("/proc/self/cgroup")
_NAME = "davylamp"
# The shell enters the group before it becomes the command, so nothing is forked outside the group.
_ENTER = 'echo $$ > "$0" && exec "$@"'
_numbers = count()


class TaskLimit:
    """A control group that limits the processes and threads of one command.

    Args:
        most: largest number of processes and threads together.
    """

    def __init__(self, most: int):
        self._place: Path | None = None
        for parent in _parents():
            place = parent / f"{_NAME}-{os.getpid()}-{next(_numbers)}"
            try:
                _sweep(parent)
                place.mkdir()
                with (place / "pids.max").open("r+") as limit:  # exists only if processes are counted
                    limit.write(f"{most}\n")
            except OSError:
                with suppress(OSError):
                    place.rmdir()
                continue
            self._place = place
            return

    def limited(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a command in the control group.

        If there is no control group, the command is returned unchanged.
        """
        if self._place is None:
            return [*command]
        return ["/bin/sh", "-c", _ENTER, str(self._place / "cgroup.procs"), *command]

    def remove(self) -> None:
        """Remove the control group. Its processes must have ended."""
        if self._place is not None:
            with suppress(OSError):
                self._place.rmdir()


def _parents() -> list[Path]:
    """Return the folders in which a control group may be created.

    The folders are below this process's control group (versions 1 and 2), and at the top of the hierarchy.
    """
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
    """Remove control groups whose processes were killed. Groups that still contain processes stay."""
    for place in parent.glob(f"{_NAME}-*-*"):
        process = place.name.split("-")[1]
        if process.isdigit() and not Path("/proc", process).exists():
            with suppress(OSError):
                place.rmdir()
