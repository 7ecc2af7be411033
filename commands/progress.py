"""How far a command is, on standard error: a bar on a terminal, now and then a line where that is a file or a pipe."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_EVERY = 60.0  # seconds between two lines
_ALL = 1e9  # seconds: speed is the mean over the whole command, as a single attack may take hours


@contextmanager
def show_progress(total: int) -> Iterator[Callable[[str, int], object]]:
    """Yield what to call with a name and the images just done; without a name they were there already.

    Args:
        total: images, those that are there included.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from ..report.text.console import make_console, printable

    console = make_console(stderr=True)
    if not console.is_terminal:
        yield ProgressLines(total, lambda line: console.print(line, highlight=False, markup=False, soft_wrap=True)).add
        return
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), *times)
    with Progress(*columns, console=console, transient=True, speed_estimate_period=_ALL) as bar:
        task = bar.add_task("starting", total=total)

        def advance(name: str, images: int) -> None:
            if name:
                bar.update(task, description=printable(name), advance=images)
            else:  # they say nothing about the speed
                bar.update(task, total=(bar.tasks[0].total or 0) - images)

        yield advance


class ProgressLines:
    """A line a minute, if there is something new to say.

    Args:
        total: images, those that are there already included.
        write: called with each line.
        clock: seconds since some moment.
    """

    def __init__(self, total: int, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic):
        self._left, self._done = total, 0
        self._write, self._clock = write, clock
        self._start = self._last = clock()

    def add(self, name: str, images: int) -> None:
        """Note images that are done; without a name they were there already."""
        self._left -= images
        if not name or not images:
            return
        self._done += images
        now = self._clock()
        if now - self._last >= _EVERY:
            self._last, spent = now, now - self._start
            pace = f"{self._done} of {self._done + self._left} images in {duration(spent)}"
            self._write(f"{pace}, about {duration(spent / self._done * self._left)} left; {name}")


def duration(seconds: float) -> str:
    """A time to two digits: "45 s", "12 min", "3.5 h"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
