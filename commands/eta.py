"""How long something will still take: by what an image of each attack has cost, not by images as such."""

import time
from collections.abc import Callable, Mapping


class _Part:
    """What is known of the images of one name: how many are left, and what those that are done have cost."""

    def __init__(self, left: int, passes: float):
        self.left, self.expected = left, passes
        self.done, self.seconds, self.asked = 0, 0.0, 0

    @property
    def passes(self) -> float:
        """Passes of an image: as measured, else as expected."""
        return self.asked / self.done if self.done and self.asked else self.expected

    @property
    def partly(self) -> float | None:
        """Images that the passes for unfinished ones amount to; None: as many as `passes` says."""
        return None

    def begin(self) -> None:
        """Note that a task begins."""

    def ask(self, passes: int) -> None:
        """Note passes for images that are not done yet."""


class _PartInTurn(_Part):
    """The same of a worst case, whose images are done as soon as one attack fools them.

    Those that are left are the ones that nothing has fooled: in the running task each of them still has all the attacks
    that are left, however few passes the others took. Later tasks cost what finished ones did.
    """

    def __init__(self, left: int, passes: float):
        super().__init__(left, passes)
        self._task = left  # images of a task
        self._before, self._asked_before = 0, 0  # images and passes of the tasks that are finished
        self._each = 0.0  # passes of each image that is left in the running task

    @property
    def partly(self) -> float:
        """Images that the passes for unfinished ones amount to."""
        return self._running * min(self._each / max(self.expected, 1e-9), 0.99)

    @property
    def _running(self) -> int:
        """Images of the running task that are left."""
        return max(min(self.left, self._task - (self.done - self._before)), 0)

    def begin(self) -> None:
        """Note that a task begins."""
        if self.done > self._before:
            self._task = self.done - self._before
        self._before, self._asked_before, self._each = self.done, self.asked, 0.0

    def ask(self, passes: int) -> None:
        """Note passes for images that are not done yet."""
        self._each += passes / max(self._running, 1)

    def passes_left(self) -> float:
        """Passes that the images that are left will take."""
        later = self._asked_before / self._before if self._before else self.expected
        return self._running * max(self.expected - self._each, 0.0) + (self.left - self._running) * later


class TimeLeft:
    """Images that are done and left, by name, and the seconds that the rest will take.

    An attack of 1000 queries and a clean prediction are an image each: seconds are measured for each name apart. What
    has not begun is expected to cost its passes, at the seconds of a pass that were measured so far.

    Args:
        total: images, those that are there already included.
        work: name -> its images and the passes that one of them is expected to cost.
        clock: seconds since some moment.
    """

    def __init__(
        self, total: int, work: Mapping[str, tuple[int, float]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.total, self.done = total, 0
        self._clock, self._last = clock, clock()
        self._parts = {name: _part(name, images, passes) for name, (images, passes) in work.items()}
        self._now, self._asked = "", 0  # the name that runs, and its passes for images that are not done yet

    def add(self, name: str, images: int) -> None:
        """Note images that are done; none: work on this name begins."""
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
        """Note images that need not be done."""
        self.total -= images
        if name in self._parts:
            self._parts[name].left = max(self._parts[name].left - images, 0)

    def add_queries(self, name: str, passes: int) -> None:
        """Note passes for images that are not done yet."""
        if name != self._now:
            self.add(name, 0)
        self._asked += passes
        self._part(name).ask(passes)

    @property
    def partly(self) -> float:
        """How many images the passes since the last finished one amount to."""
        part = self._parts.get(self._now)
        if part is not None and part.partly is not None:
            return part.partly
        if part is None or not self._asked:
            return 0.0
        return min(self._asked / max(part.passes, 1e-9), 0.99 * max(part.left, 0), self.total - self.done)

    @property
    def seconds_left(self) -> float | None:
        """What the rest will take; None: nothing was measured yet."""
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
        """What the images of a name that are left will take; None: nothing was measured yet."""
        if not isinstance(part, _PartInTurn):
            each = self._image_seconds(part, pass_seconds)
            return None if each is None else part.left * each
        running = part is self._parts.get(self._now)
        seconds = part.seconds + (self._clock() - self._last if running else 0.0)
        asked = part.asked + (self._asked if running else 0)
        speed = seconds / asked if asked else pass_seconds
        return None if speed is None else speed * part.passes_left()

    def _pass_seconds(self) -> float | None:
        """Seconds of a pass, over all that was measured; that of what runs now counts, too."""
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
    from ..engine.searches.kinds import kind_in

    return (_PartInTurn if kind_in(name) == "worst-case" else _Part)(images, passes)


def duration(seconds: float) -> str:
    """A time to two digits: "45 s", "12 min", "3.5 h"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
