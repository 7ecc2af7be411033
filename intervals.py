"""The interval of a proportion, and the tails of a bootstrap's, stated alike everywhere; it imports nothing of ours."""

import math
from functools import cache

import numpy as np
import scipy

LEVEL = 0.95
TAIL = 0.025  # on each side of a 95 % interval


def share_interval(successes: float, count: float, level: float = LEVEL) -> tuple[float, float]:
    """Clopper and Pearson's interval of a proportion: covers at least `level` whatever the proportion is.

    Wilson's is narrower, and close to 0 and 1 covers as little as 83 % (3 images), 84 % (12) or 86 % (100).

    Args:
        successes: from 0 to `count`; needs not be whole.
        count: trials; for clustered images the number that they are worth.
        level: of confidence, inside (0, 1).

    Returns:
        Both ends; (NaN, NaN) if `count` is 0.
    """
    low, high = share_ends(np.asarray(successes, float), np.asarray(count, float), level)
    return float(low), float(high)


def share_ends(successes: np.ndarray, count: np.ndarray, level: float = LEVEL) -> tuple[np.ndarray, np.ndarray]:
    """`share_interval` of many proportions at once: arrays of one shape, and both ends in that shape."""
    tail, small = (1 - level) / 2, 1e-9
    successes = np.where(np.abs(successes - np.round(successes)) < small, np.round(successes), successes)
    failures = np.where(np.abs(count - successes) < small, 0.0, count - successes)
    low = scipy.special.betaincinv(np.maximum(successes, small), failures + 1, tail)
    high = scipy.special.betaincinv(successes + 1, np.maximum(failures, small), 1 - tail)
    nothing = ~(count > 0)
    low = np.where(successes <= 0, 0.0, low)
    high = np.where(failures <= 0, 1.0, high)
    return np.where(nothing, math.nan, low)[()], np.where(nothing, math.nan, high)[()]


@cache
def tail_of(n: int) -> float:
    """What is left out of the replicates on each side for an interval of 95 % that rests on `n` images.

    Percentiles of 2.5 % are those of a normal distribution of a spread that is known, and too narrow by sqrt((n - 1) /
    n): for few images they cover less. The expanded percentile interval has the width of Student's for normal data
    (Hesterberg 2015, What Teachers Should Know About the Bootstrap, 4.4).
    """
    if n < 2:
        return TAIL
    return float(scipy.special.ndtr(math.sqrt(n / (n - 1)) * scipy.special.stdtrit(n - 1, TAIL)))
