"""How far a command is, on standard error: a bar on a terminal, now and then a line where that is a file or a pipe."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .eta import TimeLeft, duration

_EVERY = 60.0  # seconds between two lines
_OFTEN = 0.1  # seconds between two looks at the bar
_EARLY = 2.0  # seconds in which the first passes, slowed by warming up, say little about the rest
_BAR = 16  # columns of the bar
_BESIDE = 54  # columns for the bar, the images, the time so far and the time left


@contextmanager
def show_progress(total: int, work: Mapping[str, tuple[int, float]] | None = None) -> Iterator["Advance"]:
    """Yield what to call with a name and the images just done; without a name they were there already.

    Args:
        total: images, those that are there included.
        work: name -> its images and the passes that one of them is expected to cost; None: every image costs the same.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from ..report.text.console import escape_control_characters, make_console
    from ..report.text.fit_to_terminal import short_name

    console, pace = make_console(stderr=True), TimeLeft(total, work or {})
    if not console.is_terminal:
        yield Advance(pace, ProgressLines(pace, lambda line: console.print(line, highlight=False, markup=False)).look)
        return
    fields = "{task.fields[count]}", "{task.fields[left]}"
    columns = (TextColumn("{task.description}", markup=False), BarColumn(_BAR), TextColumn(fields[0]))
    with Progress(*columns, TimeElapsedColumn(), TextColumn(fields[1]), console=console, transient=True) as bar:
        task = bar.add_task("starting", total=total, count="", left="")
        last, begun = -_OFTEN, time.monotonic()

        def look(name: str) -> None:
            nonlocal last
            if time.monotonic() - last < _OFTEN and pace.done < pace.total:
                return
            last, seconds = time.monotonic(), pace.seconds_left
            early = time.monotonic() - begun < _EARLY
            left = "" if seconds is None or early else f"about {duration(seconds)} left"
            what: dict[str, Any] = (
                {"description": _cut(short_name(escape_control_characters(name)), console.width - _BESIDE)}
                if name
                else {}
            )
            count = f"{pace.done}/{pace.total}"
            bar.update(task, total=pace.total, completed=pace.done + pace.partly, count=count, left=left, **what)

        yield Advance(pace, look)


def _cut(name: str, width: int) -> str:
    """A name that leaves room for what stands beside it."""
    return name if len(name) <= max(width, 12) else f"{name[: max(width, 12) - 1]}…"


class Advance:
    """What a command reports to: called with a name and the images just done, 0 where it begins with something.

    Args:
        pace: what is known of the speed.
        look: called with the name whenever something has changed.
    """

    def __init__(self, pace: TimeLeft, look: Callable[[str], object]):
        self._pace, self._look = pace, look

    def __call__(self, name: str, images: int) -> None:
        """Note images that are done; without a name they need not be."""
        if name:
            self._pace.add(name, images)
        else:
            self._pace.skip("", images)
        self._look(name)

    def skip(self, name: str, images: int) -> None:
        """Note images of a name that need not be done: they say nothing about the speed."""
        self._pace.skip(name, images)

    def asked(self, name: str, passes: int) -> None:
        """Note passes that were just made for the images that are next of this name."""
        self._pace.add_queries(name, passes)
        self._look(name)


class ProgressLines:
    """A line a minute, if there is something new to say.

    Args:
        pace: what is known of the speed.
        write: called with each line.
        clock: seconds since some moment.
    """

    def __init__(self, pace: TimeLeft, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic):
        self._pace, self._write, self._clock = pace, write, clock
        self._start = self._last = clock()
        self._said = 0.0

    def look(self, name: str) -> None:
        """Say how far it is, if that is worth a line."""
        pace, now = self._pace, self._clock()
        so_far = pace.done + pace.partly
        if not name or now - self._last < _EVERY or so_far <= self._said:
            return
        self._last, self._said = now, so_far
        seconds = pace.seconds_left
        left = "" if seconds is None else f", about {duration(seconds)} left"
        self._write(f"{pace.done} of {pace.total} images in {duration(now - self._start)}{left}; {name}")
