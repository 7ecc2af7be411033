"""Progress on standard error: a bar on a terminal, occasional lines in a file or pipe."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .eta import TimeLeft, duration

_EVERY = 60.0  # seconds between two lines
_OFTEN = 0.1  # seconds between updates of the bar
_EARLY = 2.0  # seconds of warm-up, whose speed is not representative
_BAR = 16  # columns of the bar
_BESIDE = 54  # columns for the bar, the images, the time so far and the time left


@contextmanager
def show_progress(total: int, work: Mapping[str, tuple[int, float]] | None = None) -> Iterator["Advance"]:
    """Show progress. The context's value is called with a run's name and the number of finished images.

    An empty name means that the images were finished in an earlier call.

    Args:
        total: number of images, including finished ones.
        work: number of images and expected passes per image, by the name of the run. None if every image costs the
            same.
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
    return name if len(name) <= max(width, 12) else f"{name[: max(width, 12) - 1]}…"


class Advance:
    """Progress callback, called with a run's name and the number of images just finished, 0 when the run starts.

    Args:
        pace: measured speed.
        look: called with the name after each change.
    """

    def __init__(self, pace: TimeLeft, look: Callable[[str], object]):
        self._pace, self._look = pace, look

    def __call__(self, name: str, images: int) -> None:
        """Count finished images. Images without a name were finished in an earlier call."""
        if name:
            self._pace.add(name, images)
        else:
            self._pace.skip("", images)
        self._look(name)

    def skip(self, name: str, images: int) -> None:
        """Count images that need no computation and do not affect the measured speed."""
        self._pace.skip(name, images)

    def asked(self, name: str, passes: int) -> None:
        """Count model passes of a run on images that are not finished."""
        self._pace.add_queries(name, passes)
        self._look(name)


class ProgressLines:
    """Prints progress as lines, at most one per minute, and only if images were finished.

    Args:
        pace: measured speed.
        write: called with each line.
        clock: monotonic clock in seconds.
    """

    def __init__(self, pace: TimeLeft, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic):
        self._pace, self._write, self._clock = pace, write, clock
        self._start = self._last = clock()
        self._said = 0.0

    def look(self, name: str) -> None:
        """Write a progress line if a minute has passed since the last one."""
        pace, now = self._pace, self._clock()
        so_far = pace.done + pace.partly
        if not name or now - self._last < _EVERY or so_far <= self._said:
            return
        self._last, self._said = now, so_far
        seconds = pace.seconds_left
        left = "" if seconds is None else f", about {duration(seconds)} left"
        self._write(f"{pace.done} of {pace.total} images in {duration(now - self._start)}{left}; {name}")
