"""Shows progress: a bar on a terminal, a line below the cell in a notebook, and occasional lines in a file or pipe."""

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ...adapters.display_text import counted
from .eta import TimeLeft, duration

_EVERY = 60.0, 60.0  # seconds before the first line of a file, and between two
_IN_NOTEBOOK = 5.0, 1.0  # the same for the line in a notebook
_OFTEN = 0.1  # seconds between updates of the bar
_EARLY = 2.0  # seconds of warm-up, whose speed is not representative
_BAR = 16  # columns of the bar
_IMPLEMENTATION = re.compile(r"(.*\(|)([^():,]+):([^():,]+)(\)*)")  # "foolbox:pgd", "best(foolbox:pgd)"
_BESIDE = 54  # columns for the bar, the images, the time so far and the time left


def is_watched() -> bool:
    """Whether a person can see the progress: standard error is a terminal, or the code runs in a notebook."""
    from .console import make_console

    return make_console(stderr=True).is_jupyter or (sys.stderr is not None and sys.stderr.isatty())


def describe_runs(names: Sequence[str], models: int = 1) -> str:
    """Return a sentence with the number of runs and the libraries of each attack that several libraries run.

    "" if no attack is run by several libraries.

    Args:
        names: name of each run, such as "foolbox:pgd".
        models: number of attacked models.
    """
    libraries: dict[str, dict[str, None]] = {}
    for before, library, attack, after in (found.groups() for found in map(_IMPLEMENTATION.fullmatch, names) if found):
        libraries.setdefault(f"{before}{attack}{after}", {})[library] = None
    texts = [f"{attack} by {', '.join(several)}" for attack, several in libraries.items() if len(several) > 1]
    on = f" on {models} models" if models > 1 else ""
    return f"{counted(len(names), 'run')}{on}: {'; '.join(texts)}" if texts else ""


def show_runs(total: int, work: Mapping[str, tuple[int, float]] | None = None) -> AbstractContextManager["Advance"]:
    """Show progress as `show_progress` does, below a line that lists the libraries of each attack."""
    return show_progress(total, work, describe_runs(list(work or ())))


def show_plan(plan: Any, heading: str = "") -> AbstractContextManager["Advance"]:
    """Show the progress of an evaluation as `show_progress` does.

    Args:
        plan: plan of the evaluation.
        heading: line above the bar.
    """
    from ...engine.query_estimates import expected_work

    return show_progress(plan.images, expected_work(plan), heading)


@contextmanager
def show_progress(
    total: int, work: Mapping[str, tuple[int, float]] | None = None, heading: str = ""
) -> Iterator["Advance"]:
    """Show progress until the block ends.

    Yields a function that is called with the name of a run and the number of images that were just finished.

    An empty name means that the images were finished in an earlier evaluation.

    Args:
        total: number of images of all runs, including finished images.
        work: number of images, and expected model passes per image, by the name of the run. None means that every image
            costs the same.
        heading: line above the bar on a terminal or in a notebook.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from .console import escape_control_characters, make_console
    from .fit_to_terminal import short_name

    console, pace = make_console(stderr=True), TimeLeft(total, work or {})
    if console.is_jupyter:
        with _notebook_line() as write:
            above = f"{heading}\n" if heading else ""
            yield Advance(pace, ProgressLines(pace, lambda line: write(above + line), every=_IN_NOTEBOOK).look)
        return
    if not console.is_terminal:
        yield Advance(pace, ProgressLines(pace, lambda line: console.print(line, highlight=False, markup=False)).look)
        return
    if heading:
        console.print(heading)
    fields = "{task.fields[count]}", "{task.fields[left]}"
    columns = (TextColumn("{task.description}", markup=False), BarColumn(_BAR), TextColumn(fields[0]))
    columns = (*columns, TimeElapsedColumn(), TextColumn(fields[1]))
    seen = sys.stdout is not None and sys.stdout.isatty()  # rich would print a caller's other output to standard error
    with Progress(*columns, console=console, transient=True, redirect_stdout=seen) as bar:
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


@contextmanager
def _notebook_line() -> Iterator[Callable[[str], object]]:
    """Yield a function that shows a text below the notebook cell and replaces the text before.

    On exit, the text disappears.
    """
    from IPython.display import display  # type: ignore[import-not-found]

    shown: list[Any] = []

    def write(text: str) -> None:
        if shown:
            shown[0].update({"text/plain": text}, raw=True)
        else:
            shown.append(display({"text/plain": text}, raw=True, display_id=True))

    try:
        yield write
    finally:
        if shown:
            write("")


def _cut(name: str, width: int) -> str:
    return name if len(name) <= max(width, 12) else f"{name[: max(width, 12) - 1]}…"


class Advance:
    """Callback that records and shows progress. Called with the name of a run and the number of images just finished.

    The number is 0 when the run starts.

    Args:
        pace: counts images, and estimates the remaining time.
        look: function that shows progress, called with the name of the run after each change.
    """

    def __init__(self, pace: TimeLeft, look: Callable[[str], object]):
        self._pace, self._look = pace, look

    def __call__(self, name: str, images: int) -> None:
        """Count finished images of a run.

        An empty name means that the images were finished in an earlier evaluation.
        """
        if name:
            self._pace.add(name, images)
        else:
            self._pace.skip("", images)
        self._look(name)

    def skip(self, name: str, images: int) -> None:
        """Remove images that need no computation from the remaining images. The measured speed is not affected."""
        self._pace.skip(name, images)

    def asked(self, name: str, passes: int) -> None:
        """Count model passes of a run on images that are not finished."""
        self._pace.add_queries(name, passes)
        self._look(name)


class ProgressLines:
    """Writes progress as lines of text. A line is written only if images were finished, and at most once in a period.

    Args:
        pace: counts images, and estimates the remaining time.
        write: function that is called with each line.
        clock: monotonic clock in seconds.
        every: seconds before the first line, and between two lines.
    """

    def __init__(
        self,
        pace: TimeLeft,
        write: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
        every: tuple[float, float] = _EVERY,
    ):
        self._pace, self._write, self._clock, self._every = pace, write, clock, every[1]
        self._start = clock()
        self._next, self._said = self._start + every[0], 0.0

    def look(self, name: str) -> None:
        """Write a progress line if the period has passed since the last line."""
        pace, now = self._pace, self._clock()
        so_far = pace.done + pace.partly
        if not name or now < self._next or so_far <= self._said:
            return
        self._next, self._said = now + self._every, so_far
        seconds = pace.seconds_left
        left = "" if seconds is None else f", about {duration(seconds)} left"
        self._write(f"{pace.done} of {pace.total} images in {duration(now - self._start)}{left}; {name}")
