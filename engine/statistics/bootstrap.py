"""Percentile intervals by resampling images: a replicate is a row of counts, an estimate a product of matrices."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from ...errors import InvalidInput
from ...metrics import half_distortion
from ...metrics.cost import LEVELS

_TAILS = (0.025, 0.975)  # of a 95 % interval
_AT_ONCE = 2**22  # numbers of a matrix with a row for each replicate that are held at once
_IN_CACHE = 2**16  # of them, where many are made of each other, one after the other
_GUESSES = np.geomspace(1e-6, 1e3, 256)  # rates of an exponential over the mean distance
_APART = 8  # guesses between two of the first look
_NEWTON = 5  # steps from the best guess


FEWEST = 5  # images; of fewer the bootstrap knows too little of the spread, and of one nothing


class Estimate(NamedTuple):
    """A number, its 95 % interval and the images that it rests on; NaN where it is undefined."""

    value: float
    low: float
    high: float
    n: int


class Draws(NamedTuple):
    """A mean as sums and counts, (R,) each: of the images themselves, then of every replicate.

    `n` images count, one that several attacks meet as often; `different` are the different ones, 0: all of them.
    """

    total: np.ndarray
    count: np.ndarray
    n: int
    different: int = 0

    @property
    def ratio(self) -> np.ndarray:
        """The mean in each, (R,); NaN where no image counts."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.total / self.count


def resample(images: int, replicates: int, seed: int) -> np.ndarray:
    """How often each image is drawn: the same arguments give the same counts, so that cells stay paired.

    Args:
        images: number of images, at least 1.
        replicates: 0 for no interval.
        seed: random seed of the draws.

    Returns:
        Shape (replicates + 1, images), uint8; row 0 is all ones: the images themselves.

    Raises:
        InvalidInput: if a number is out of range.
    """
    if replicates < 0 or images < 1:
        raise InvalidInput(f"expected replicates >= 0 and images >= 1, got {replicates} and {images}")
    generator = np.random.default_rng((seed, images))
    counts = np.ones((replicates + 1, images), np.uint8)
    for rows in _groups(replicates, images):
        drawn = generator.integers(images, size=(len(rows), images)) + images * np.arange(len(rows))[:, None]
        multiplicities = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
        counts[rows.start + 1 : rows.stop + 1] = multiplicities.clip(max=255)
    return counts


def draw_means(counts: np.ndarray, values: np.ndarray) -> list[Draws]:
    """The mean over the defined values of every column.

    Args:
        counts: from `resample`, shape (R, n), as floating point numbers where many are asked for one after the other.
        values: shape (n, S); NaN where undefined.

    Returns:
        One for each column; those that are defined on the same images share their counts.
    """
    defined, endless = ~np.isnan(values), np.isinf(values)
    places: dict[bytes, int] = {}
    of_mask = [places.setdefault(mask.tobytes(), len(places)) for mask in np.packbits(defined, axis=0).T]
    masks = defined[:, [of_mask.index(place) for place in range(len(places))]]
    both = np.ascontiguousarray(np.concatenate([np.where(defined & ~endless, values, 0.0), masks], axis=1))
    sums = np.concatenate([counts[rows.start : rows.stop] @ both for rows in _groups(len(counts), len(values))])
    columns = values.shape[1]
    for image, place in zip(*endless.nonzero(), strict=True):  # PSNR of an image left as it was; not 0 times infinity
        sums[counts[:, image] > 0, place] = values[image, place]
    totals, counted = np.ascontiguousarray(sums[:, :columns].T), np.ascontiguousarray(sums[:, columns:].T)
    return [Draws(totals[i], counted[of_mask[i]], int(defined[:, i].sum())) for i in range(columns)]


def draws_of(values: np.ndarray, n: int) -> Draws:
    """A statistic that is no mean over images, (R,), as draws."""
    return Draws(values, np.ones(len(values)), n)


def interval(draws: np.ndarray, n: int, different: int = 0) -> Estimate:
    """The value and its percentile interval; replicates where it is undefined are left out.

    There is no interval (NaN) of fewer than `FEWEST` images, nor of images that do not differ: one of no width would
    claim that nothing else is possible. Not for shares: they have `shares`.

    Args:
        draws: the estimate on the images themselves, then in every replicate, shape (R,).
        n: images that it rests on.
        different: how many different ones they are; 0: all.
    """
    low, high = (float(ends[0]) for ends in bands(draws[:, None]))
    if (different or n) < FEWEST or low == high or math.isclose(low, high, rel_tol=1e-12):  # sums round
        low = high = math.nan
    return Estimate(float(draws[0]), low, high, n)


def bands(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Percentile interval of every column of `draws`, shape (R, C), row 0 left out: two of shape (C,)."""
    ordered = np.sort(draws[1:], axis=0)  # NaN last
    known = (~np.isnan(ordered)).sum(0)
    if not len(ordered):
        return np.full(draws.shape[1], math.nan), np.full(draws.shape[1], math.nan)
    ends = []
    for share in _TAILS:
        place = np.ceil(share * known).astype(int).clip(1) - 1
        ends.append(np.take_along_axis(ordered, place[None], axis=0)[0])
    return ends[0], ends[1]


def draw_macro_f1(counts: np.ndarray, labels: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """`metrics.macro_f1` over the classes that are met, shape (R,); labels and predictions (n,)."""
    classes = np.unique(np.concatenate([labels, predicted]))
    actual = (labels[:, None] == classes).astype(float)
    assigned = (predicted[:, None] == classes).astype(float)

    def score(drawn: np.ndarray) -> np.ndarray:
        hits, sizes = drawn @ (actual * assigned), drawn @ (actual + assigned)
        met = (sizes > 0).sum(1)
        scores = (2 * hits / np.where(sizes > 0, sizes, 1)).sum(1)
        return np.where(met > 0, scores / np.maximum(met, 1), math.nan)

    return _by_groups(score, counts, labels)


def draw_levels(seconds: np.ndarray) -> np.ndarray:
    """`metrics.time_cost_levels` of attacks whose seconds are (R, A), in each replicate among those that are known."""
    faster = (seconds[:, None, :] < seconds[:, :, None]).sum(2)
    known = (~np.isnan(seconds)).sum(1, keepdims=True)
    return np.where(np.isnan(seconds), math.nan, faster * LEVELS // known.clip(1))


def draw_optimality(counts: np.ndarray, distances: np.ndarray, best: np.ndarray) -> np.ndarray:
    """`metrics.local_optimality` of an attack whose distances are (n,) against the best, in each replicate."""

    def blocks(drawn: np.ndarray) -> Iterator[range]:
        return _groups(len(drawn), len(best), _IN_CACHE)

    def reach(drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        largest = np.where(drawn > 0, best, -math.inf).max(1)
        return largest, (drawn * np.minimum(distances, largest[:, None])).sum(1)

    def area(drawn: np.ndarray) -> np.ndarray:
        images = drawn.sum(1)
        largest, reached = np.concatenate([reach(drawn[rows.start : rows.stop]) for rows in blocks(drawn)], axis=1)
        reached = reached / images
        least = drawn @ best / images
        return 1 - (reached - least) / (drawn @ (best > 0) / images * largest - least)

    if np.isinf(best).any():  # undefined on the images themselves: so is its interval
        return np.full(len(counts), math.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        return _by_groups(area, counts, best)


def draw_half_distortion(counts: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """`metrics.half_distortion` of distances (n,), in each replicate; row 0 is what the metric itself gives."""
    fallen = np.flatnonzero((distances > 0) & np.isfinite(distances))
    fallen = fallen[np.argsort(distances[fallen], kind="stable")]
    steps, begins = np.unique(distances[fallen], return_index=True)
    right = (distances > 0).astype(float)
    if len(steps):
        at_each = lambda drawn: np.add.reduceat(drawn.take(fallen, 1), begins, axis=1)  # noqa: E731
        known = _by_groups(lambda drawn: _half(at_each(drawn), drawn @ right, steps), counts, distances)
    else:
        known = np.where(_by_groups(lambda drawn: drawn @ right, counts, distances) > 0, math.inf, math.nan)
    known[0] = half_distortion(torch.tensor(distances)).value
    return known


def _half(fallen: np.ndarray, right: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """The half distortion of every replicate, (R,), as `metrics.half_distortion` defines it.

    In a replicate the accuracy just after step s is a_s = 1 - (fallen up to s) / right; only steps at which an image
    falls count (`met`). The rate r of exp(-r d) minimises half of F = sum over met s of (exp(-r d_s) - a_s)^2; the
    accuracy 1 at 0 adds nothing, as exp(0) = 1. Without the constant, F = sum exp(-r d_s)^2 - 2 a_s exp(-r d_s): two
    products of matrices for a grid of rates. From the best of the grid, Newton's method in u = ln r, which keeps r
    positive: with g = exp(-r d), dg/du = -r d g (`slope`) and d^2g/du^2 = slope (1 - r d), hence
    F'/2 = sum (g - a) slope and F''/2 = sum slope (slope + (g - a) (1 - r d)). A step stays between the neighbours on
    the grid, and is none where F'' <= 0. Distances are divided by their mean, so that one grid suits all units; the
    answer is ln 2 / r in theirs.

    Args:
        fallen: images at each of the steps, (R, S).
        right: images that are right when clean, (R,).
        steps: the distances at which an image falls in some replicate, rising, (S,).

    Returns:
        Infinite where no image falls; NaN where none is right, or all fall at one distance, which no rate fits.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        share = 1 - fallen.cumsum(1) / right[:, None]
    met, scale = fallen > 0, steps.mean()
    share, scaled = np.where(met, share, 0.0), steps / scale
    guess = _guess_rates(met, share, scaled)
    blocks = _groups(len(share), len(steps), _IN_CACHE)
    rate = np.concatenate(
        [_newton(met[b], share[b], scaled, guess[b]) for b in (slice(r.start, r.stop) for r in blocks)]
    )
    half = math.log(2) / np.exp(rate) * scale
    left = np.take_along_axis(share, met.argmax(1)[:, None], axis=1)[:, 0]
    half = np.where(met.any(1), half, math.inf)
    return np.where((right == 0) | (met.any(1) & (left <= 0)), math.nan, half)


def _guess_rates(met: np.ndarray, share: np.ndarray, scaled: np.ndarray) -> np.ndarray:
    """The place of the rate of `_GUESSES` that fits each replicate best, (R,): among a few far apart, then near it."""
    weights = met.astype(float)
    chosen = np.arange(0, len(_GUESSES), _APART)
    coarse = chosen[_misfits(weights, share, scaled, chosen).argmin(1)]
    near = np.arange(max(0, coarse.min() - _APART), min(len(_GUESSES), coarse.max() + _APART + 1))
    misfits = _misfits(weights, share, scaled, near)
    misfits[np.abs(near - coarse[:, None]) > _APART] = math.inf
    return near[misfits.argmin(1)]


def _misfits(weights: np.ndarray, share: np.ndarray, scaled: np.ndarray, places: np.ndarray) -> np.ndarray:
    curves = np.exp(-np.outer(scaled, _GUESSES[places]))
    return weights @ np.square(curves) - 2 * share @ curves


def _newton(met: np.ndarray, share: np.ndarray, scaled: np.ndarray, guess: np.ndarray) -> np.ndarray:
    """The logarithm of the best rate of each replicate, (R,); all of them at once."""
    low, high = np.log(_GUESSES[(guess - 1).clip(0)]), np.log(_GUESSES[(guess + 1).clip(max=len(_GUESSES) - 1)])
    rate = np.log(_GUESSES[guess])
    for _ in range(_NEWTON):
        decay = np.exp(rate)[:, None] * scaled
        fitted = np.exp(-decay)
        slope, error = -decay * fitted * met, fitted - share
        first, second = (error * slope).sum(1), (slope * (slope + error * (1 - decay))).sum(1)
        rate = np.clip(rate - first / np.where(second > 0, second, math.inf), low, high)
    return rate


def _by_groups(
    function: Callable[[np.ndarray], np.ndarray], counts: np.ndarray, like: np.ndarray, most: int = _AT_ONCE
) -> np.ndarray:
    """A function of rows of counts, applied to as many as memory holds at once."""
    parts = [function(counts[rows.start : rows.stop].astype(float)) for rows in _groups(len(counts), len(like), most)]
    return np.concatenate(parts)


def _groups(rows: int, columns: int, most: int = _AT_ONCE) -> Iterator[range]:
    size = max(1, most // max(columns, 1))
    return (range(start, min(start + size, rows)) for start in range(0, rows, size))
