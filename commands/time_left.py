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
        self._parts = {name: _Part(images, passes) for name, (images, passes) in work.items()}
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
        if images or name != self._now:
            self._last, self._asked = now, 0
        self._now = name

    def skip(self, name: str, images: int) -> None:
        """Note images that need not be done."""
        self.total -= images
        if name in self._parts:
            self._parts[name].left = max(self._parts[name].left - images, 0)

    def ask(self, name: str, passes: int) -> None:
        """Note passes for images that are not done yet."""
        if name != self._now:
            self.add(name, 0)
        self._asked += passes

    @property
    def partly(self) -> float:
        """How many images the passes since the last finished one amount to."""
        part = self._parts.get(self._now)
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
                each = self._image_seconds(part, pass_seconds)
                if each is None:
                    return None
                seconds += part.left * each
                unnamed -= part.left
        if unnamed > 0:
            if not self.done:
                return None
            seconds += unnamed * sum(part.seconds for part in self._parts.values()) / self.done
        running = self._parts.get(self._now)
        if running is not None:
            seconds -= self.partly * (self._image_seconds(running, pass_seconds) or 0.0)
        return max(seconds, 0.0)

    def _part(self, name: str) -> _Part:
        return self._parts.setdefault(name, _Part(0, 1.0))

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


def duration(seconds: float) -> str:
    """A time to two digits: "45 s", "12 min", "3.5 h"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
