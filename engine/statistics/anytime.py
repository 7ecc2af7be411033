"""Intervals of a mean that are valid for any number of images, so that an evaluation may stop at any time."""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from ...intervals import LEVEL, Interval, proportion_interval

GRID = np.arange(2001) / 2000  # candidate means, exactly as decimal text is parsed
_MOST = 0.9  # part of the wealth that one image may cost
_AT_ONCE = 256  # values in one array operation


class _LowerBound:
    """A lower bound of the mean of values in [0, 1], by betting against every smaller mean.

    For each candidate mean m, a gambler's wealth starts at 1 and is multiplied by 1 + bet * (x - m) for each value x.
    Each bet depends only on earlier values. A bet is never negative, and so small that the wealth stays nonnegative. If
    m is the true mean, the wealth is a martingale and reaches 1 / alpha with a probability of at most alpha (Ville
    1939). Each m whose wealth reaches 1 / alpha is therefore excluded (Waudby-Smith and Ramdas 2024, Estimating means
    of bounded random variables by betting). Half of the wealth is bet as if values were 0 or 1 with the mean so far.
    The other half is bet by the mean and variance so far, which is better for values close together.

    Args:
        population: number of values in the population, if the values are drawn at random without replacement. None for
            independent draws.
        alpha: largest probability that the bound is ever above the mean.
        grid: candidate means, ascending from 0 to 1. With each candidate m, the grid contains 1 - m.
    """

    def __init__(self, population: int | None, alpha: float, grid: np.ndarray):
        self.population, self.alpha, self.grid = population, alpha, grid
        self.count, self.sum, self.deviations = 0, 0.0, 0.0
        self.log_wealth = np.zeros((2, len(grid)))  # of both halves

    def add(self, values: np.ndarray) -> None:
        """Update the wealth of each candidate mean with further values, (n,)."""
        for block in np.split(values, range(_AT_ONCE, len(values), _AT_ONCE)):
            self._add(block)

    def _add(self, values: np.ndarray) -> None:
        counts = self.count + np.arange(len(values))[:, None]
        sums = self.sum + np.concatenate([[0.0], np.cumsum(values)])[:, None]
        spread = (values[:, None] - (sums[1:] + 0.5) / (counts + 2)) ** 2
        deviations = self.deviations + np.concatenate([[[0.0]], np.cumsum(spread, 0)])
        before, x = sums[:-1], values[:, None]
        means = self._remaining_means(before, counts)
        inside = (means > 0) & (means < 1)
        m = np.where(inside, means, 0.5)
        guess, centre = (before + 1) / (counts + 2), (before + 0.5) / (counts + 1)
        gap, variance = centre - m, (deviations[:-1] + 0.25) / (counts + 1)
        bets = np.stack([(guess - m) / (m * (1 - m)), np.minimum(gap / (variance + gap**2), _MOST / m)])
        growth = np.log1p(np.maximum(bets, 0) * (x - m))
        # The values still to come cannot have a mean below 0, or of 0 if one is larger; above 1, nothing is proved.
        impossible = (means < 0) | ((means <= 0) & (x > 0))
        self.log_wealth += np.where(inside, growth, np.where(impossible, math.inf, 0.0)).sum(1)
        self.count += len(values)
        self.sum, self.deviations = float(sums[-1, 0]), float(deviations[-1, 0])

    def _remaining_means(self, sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return the mean that the unseen values must have, for each number of seen values and each candidate mean."""
        if self.population is None:
            return np.broadcast_to(self.grid, (len(sums), len(self.grid)))
        return (self.population * self.grid - sums) / (self.population - counts)

    @property
    def value(self) -> float:
        """The lower bound: the largest candidate mean such that this candidate and all smaller ones are excluded.

        The bound is larger if the values seen so far imply a larger mean even if all unseen values are 0.
        """
        known = 0.0 if self.population is None else self.sum / self.population
        return known if self.count == self.population else max(float(self.grid[self._excluded]), known)

    @property
    def complement(self) -> float:
        """1 - `value`, computed without rounding errors such as 1 - 0.9 < 0.1."""
        known = 1.0 if self.population is None else (self.population - self.sum) / self.population
        return known if self.count == self.population else min(float(self.grid[-1 - self._excluded]), known)

    @property
    def _excluded(self) -> int:
        """Return the index of the last of the excluded candidates at the beginning. 0 if the first is not excluded."""
        excluded = np.logaddexp(*self.log_wealth) - math.log(2) >= -math.log(self.alpha)
        return max(int(np.argmin([*excluded, False])) - 1, 0)


class AnytimeMean:
    """Mean of values per image, with an interval that is valid for all numbers of images simultaneously.

    A value may be known only as a range (invalid results). The interval then covers the mean of the lower ends of the
    ranges and the mean of the upper ends.

    Args:
        population: number of images in the population, if images are drawn at random without replacement. The interval
            is then for the mean over the population. None for independent draws; the interval is then for the mean of
            their distribution.
        level: probability that the interval is right at all numbers of images together, inside (0, 1).
        grid: candidate means, ascending from 0 to 1. With each candidate m, the grid must contain 1 - m. Bounds are
            rounded outwards to candidates. Few candidates make simulations faster.
    """

    def __init__(self, population: int | None = None, level: float = LEVEL, grid: np.ndarray = GRID):
        tail = (1 - level) / 2
        self._low, self._high = _LowerBound(population, tail, grid), _LowerBound(population, tail, grid)
        self._total = np.zeros(2)

    def add(self, low: ArrayLike, high: ArrayLike | None = None) -> None:
        """Add the values of further images.

        Args:
            low: values in [0, 1], shape (n,), in the random order of the images. For a value that is known as a range,
                the lower end.
            high: upper ends of the ranges, shape (n,). None if all values are known exactly.

        Raises:
            ValueError: if a value is outside [0, 1], or there are more values than the population.
        """
        ends = np.stack([np.asarray(low, float), np.asarray(low if high is None else high, float)])
        if not ((ends >= 0) & (ends <= 1)).all():
            raise ValueError("expected values from 0 to 1, got values outside this range")
        population = self._low.population
        if population is not None and self._low.count + ends.shape[1] > population:
            raise ValueError(
                f"expected at most {population} values (the population), got {self._low.count + ends.shape[1]}"
            )
        self._low.add(ends[0])
        self._high.add(1 - ends[1])
        self._total += ends.sum(1)

    @property
    def images(self) -> int:
        """Number of images so far."""
        return self._low.count

    @property
    def interval(self) -> Interval:
        """The mean of the lower ends so far, and the interval.

        Without images, the mean is NaN and the interval [0, 1].
        """
        value = float(self._total[0]) / self.images if self.images else math.nan
        return Interval(value, self._low.value, self._high.complement)


def rate_interval(
    low: np.ndarray, high: np.ndarray, population: int | None, level: float = LEVEL
) -> tuple[float, float]:
    """Return the interval of the mean of values per image, which may be known only as ranges.

    Args:
        low: values in [0, 1], or the lower ends of ranges, shape (n,). If the images were drawn at random, the values
            must be in the order of the draws.
        high: the same values, or the upper ends of ranges, shape (n,).
        population: number of images in the population, if the images were drawn at random. The interval is then that of
            `AnytimeMean`, so the number of images may depend on the results. None if the number of images was fixed in
            advance. The interval is then Clopper and Pearson's.
        level: confidence level, in (0, 1).
    """
    if population is None:
        n = len(low)
        return proportion_interval(float(low.sum()), n, level)[0], proportion_interval(float(high.sum()), n, level)[1]
    return _drawn_interval(*(np.ascontiguousarray(each, float).tobytes() for each in (low, high)), population, level)


@lru_cache(maxsize=256)
def _drawn_interval(low: bytes, high: bytes, population: int, level: float) -> tuple[float, float]:
    """Return the interval of `AnytimeMean`. The interval is cached, because several tables of a folder show it."""
    mean = AnytimeMean(population, level)
    mean.add(np.frombuffer(low), np.frombuffer(high))
    return mean.interval.low, mean.interval.high
