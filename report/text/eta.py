"""Remaining time, estimated from the measured cost per image of each attack."""

import time
from collections.abc import Callable, Mapping

from ...adapters.display_text import duration

__all__ = ["TimeLeft", "duration"]


class _Part:
    """Progress of the images with one name: number of remaining images, and cost of the finished ones."""

    def __init__(self, left: int, passes: float):
        self.left, self.expected = left, passes
        self.done, self.seconds, self.asked = 0, 0.0, 0

    @property
    def passes(self) -> float:
        return self.asked / self.done if self.done and self.asked else self.expected

    @property
    def partly(self) -> float | None:
        """Progress on unfinished images, in images; None if the caller computes it from `passes`."""
        return None

    def begin(self) -> None:
        """Start a task."""

    def ask(self, passes: int) -> None:
        """Count passes for unfinished images."""


class _PartInTurn(_Part):
    """Progress of a worst case, in which an image is finished as soon as one attack fools it.

    The images that remain in the running task have not been fooled so far. Each is therefore expected to need all
    remaining attacks, however few passes the finished images needed. Images of later tasks are expected to need as
    many passes as those of finished tasks.
    """

    def __init__(self, left: int, passes: float):
        super().__init__(left, passes)
        self._task = left  # images of the task
        self._before, self._asked_before = 0, 0  # images and passes of finished tasks
        self._each = 0.0  # passes per remaining image of the running task

    @property
    def partly(self) -> float:
        return self._running * min(self._each / max(self.expected, 1e-9), 0.99)

    @property
    def _running(self) -> int:
        return max(min(self.left, self._task - (self.done - self._before)), 0)

    def begin(self) -> None:
        if self.done > self._before:
            self._task = self.done - self._before
        self._before, self._asked_before, self._each = self.done, self.asked, 0.0

    def ask(self, passes: int) -> None:
        self._each += passes / max(self._running, 1)

    def passes_left(self) -> float:
        later = self._asked_before / self._before if self._before else self.expected
        return self._running * max(self.expected - self._each, 0.0) + (self.left - self._running) * later


class TimeLeft:
    """Finished and remaining images of each run, and the remaining time in seconds.

    Seconds are measured for each run, because images differ in cost: an attack may need 1000 queries, a clean
    prediction only one. For a run that has not started, the time is its expected number of passes times the measured
    seconds per pass.

    Args:
        total: number of images, including finished ones.
        work: number of images and expected passes per image, by the name of the run.
        clock: monotonic clock in seconds.
    """

    def __init__(
        self, total: int, work: Mapping[str, tuple[int, float]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.total, self.done = total, 0
        self._clock, self._last = clock, clock()
        self._parts = {name: _part(name, images, passes) for name, (images, passes) in work.items()}
        self._now, self._asked = "", 0  # running name, and its passes for unfinished images

    def add(self, name: str, images: int) -> None:
        """Count finished images of a run. `images` is 0 when work on the run starts."""
        now, part = self._clock(), self._part(name)
        if images:
            part.seconds += now - self._last
            part.asked += self._asked if name == self._now else 0
            part.done += images
            part.left = max(part.left - images, 0)
            self.done += images
        if not images:
            part.begin()
        if images or name != self._now:
            self._last, self._asked = now, 0
        self._now = name

    def skip(self, name: str, images: int) -> None:
        """Remove images that need no computation from the total and from the remaining images of a run."""
        self.total -= images
        if name in self._parts:
            self._parts[name].left = max(self._parts[name].left - images, 0)

    def add_queries(self, name: str, passes: int) -> None:
        """Count model passes of a run on images that are not finished."""
        if name != self._now:
            self.add(name, 0)
        self._asked += passes
        self._part(name).ask(passes)

    @property
    def partly(self) -> float:
        """Progress since the last finished image, in images."""
        part = self._parts.get(self._now)
        if part is not None and part.partly is not None:
            return part.partly
        if part is None or not self._asked:
            return 0.0
        return min(self._asked / max(part.passes, 1e-9), 0.99 * max(part.left, 0), self.total - self.done)

    @property
    def seconds_left(self) -> float | None:
        """Remaining time in seconds; None before the first measurement."""
        pass_seconds = self._pass_seconds()
        seconds, unnamed = 0.0, self.total - self.done
        for part in self._parts.values():
            if part.left:
                rest = self._seconds_of(part, pass_seconds)
                if rest is None:
                    return None
                seconds += rest
                unnamed -= part.left
        if unnamed > 0:
            if not self.done:
                return None
            seconds += unnamed * sum(part.seconds for part in self._parts.values()) / self.done
        running = self._parts.get(self._now)
        if running is not None and running.partly is None:
            seconds -= self.partly * (self._image_seconds(running, pass_seconds) or 0.0)
        return max(seconds, 0.0)

    def _part(self, name: str) -> _Part:
        return self._parts.setdefault(name, _part(name, 0, 1.0))

    def _seconds_of(self, part: _Part, pass_seconds: float | None) -> float | None:
        """Return the seconds for a run's remaining images; None before the first measurement."""
        if not isinstance(part, _PartInTurn):
            each = self._image_seconds(part, pass_seconds)
            return None if each is None else part.left * each
        running = part is self._parts.get(self._now)
        seconds = part.seconds + (self._clock() - self._last if running else 0.0)
        asked = part.asked + (self._asked if running else 0)
        speed = seconds / asked if asked else pass_seconds
        return None if speed is None else speed * part.passes_left()

    def _pass_seconds(self) -> float | None:
        """Return the seconds per pass over all measurements, including those of the current run."""
        seconds = sum(part.seconds for part in self._parts.values())
        passes = sum(part.done * part.passes for part in self._parts.values())
        if self._asked:
            seconds, passes = seconds + self._clock() - self._last, passes + self._asked
        return seconds / passes if passes else None

    def _image_seconds(self, part: _Part, pass_seconds: float | None) -> float | None:
        if part.done:
            return part.seconds / part.done
        running = self._parts.get(self._now)
        if part is running and self._asked:
            return (self._clock() - self._last) / self._asked * part.expected
        return None if pass_seconds is None else pass_seconds * part.expected


def _part(name: str, images: int, passes: float) -> _Part:
    from ...engine.searches.kinds import kind_in

    return (_PartInTurn if kind_in(name) == "worst-case" else _Part)(images, passes)
