"""Percentile intervals by resampling images: a replicate is a row of counts, an estimate a product of matrices."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from ...errors import InvalidInput
from ...intervals import TAIL, tail_of
from ...metrics import half_distortion
from ...metrics.cost import LEVELS

_AT_ONCE = 2**22  # numbers of a matrix with a row for each replicate that are held at once
_IN_CACHE = 2**19  # of them, where many are made of each other, one after the other
_ROUNDING = 1e-12  # of an optimality, which is of the order of 1
_FEW = 16  # images that are looked at for the largest, one after the other
_GUESSES = np.geomspace(1e-6, 1e3, 256)  # rates of an exponential over the mean distance
_APART = 8  # guesses between two of the first look
_NEWTON = 5  # steps from the best guess
_REACH = (_APART + 1) * float(np.log(_GUESSES[1] / _GUESSES[0]))  # around a guess, in logarithms
_NODES = 24  # of a polynomial over twice that


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
    """The value and its expanded percentile interval (`tail_of`); replicates where it is undefined are left out.

    There is no interval (NaN) of fewer than `FEWEST` images, nor of images that do not differ: one of no width would
    claim that nothing else is possible. Not for shares: they have `shares`.

    Args:
        draws: the estimate on the images themselves, then in every replicate, shape (R,).
        n: images that it rests on.
        different: how many different ones they are; 0: all.
    """
    low, high = (float(ends[0]) for ends in bands(draws[:, None], tail_of(different or n)))
    if (different or n) < FEWEST or low == high or math.isclose(low, high, rel_tol=1e-12):  # sums round
        low = high = math.nan
    return Estimate(float(draws[0]), low, high, n)


def bands(draws: np.ndarray, tail: float = TAIL) -> tuple[np.ndarray, np.ndarray]:
    """Percentile interval of every column of `draws`, shape (R, C), row 0 left out: two of shape (C,).

    Args:
        draws: the estimate on the images themselves, then in every replicate.
        tail: share of the replicates that is left out on each side.
    """
    ordered = np.sort(draws[1:], axis=0)  # NaN last
    known = (~np.isnan(ordered)).sum(0)
    if not len(ordered):
        return np.full(draws.shape[1], math.nan), np.full(draws.shape[1], math.nan)
    ends = []
    for share in (tail, 1 - tail):
        place = np.ceil(share * known).astype(int).clip(1) - 1
        ends.append(np.take_along_axis(ordered, place[None], axis=0)[0])
    return ends[0], ends[1]


def draw_macro_f1(counts: np.ndarray, labels: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """`metrics.macro_f1` over the classes that are met, shape (R,); labels and predictions (n,)."""
    classes = np.unique(np.concatenate([labels, predicted]))
    right = labels == predicted

    def score(drawn: np.ndarray) -> np.ndarray:
        hits = _sums_by_class(drawn[:, right], labels[right], classes)
        sizes = _sums_by_class(drawn, labels, classes) + _sums_by_class(drawn, predicted, classes)
        met = (sizes > 0).sum(1)
        scores = (2 * hits / np.where(sizes > 0, sizes, 1)).sum(1)
        return np.where(met > 0, scores / np.maximum(met, 1), math.nan)

    return _by_groups(score, counts, labels)


def _sums_by_class(drawn: np.ndarray, of_images: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """How many of the drawn images (R, n) are of each class, (R, C); `of_images` is the class of each, (n,)."""
    order = np.argsort(of_images, kind="stable")
    met, begins = np.unique(of_images[order], return_index=True)
    sums = np.zeros((len(drawn), len(classes)))
    if len(met):
        sums[:, np.searchsorted(classes, met)] = np.add.reduceat(drawn[:, order], begins, axis=1)
    return sums


def draw_levels(seconds: np.ndarray) -> np.ndarray:
    """`metrics.time_cost_levels` of attacks whose seconds are (R, A), in each replicate among those that are known."""
    faster = (seconds[:, None, :] < seconds[:, :, None]).sum(2)
    known = (~np.isnan(seconds)).sum(1, keepdims=True)
    return np.where(np.isnan(seconds), math.nan, faster * LEVELS // known.clip(1))


def draw_optimality(counts: np.ndarray, distances: np.ndarray, best: np.ndarray) -> np.ndarray:
    """`metrics.local_optimality` of an attack whose distances are (n,) against the best, in each replicate."""
    if np.isinf(best).any():  # undefined on the images themselves: so is its interval
        return np.full(len(counts), math.nan)
    ends, place = np.unique(_largest_drawn(counts, best), return_inverse=True)  # few: large ones are nearly always met
    reached = [np.minimum(distances, end) for end in ends]
    sums = _products(counts, np.stack([best, best > 0, np.ones(len(best)), *reached], axis=1))
    least, right, images = sums[:, :3].T
    with np.errstate(invalid="ignore", divide="ignore"):  # of a replicate without an image
        area, least = sums[np.arange(len(sums)), 3 + place] / images, least / images
        optimality = 1 - (area - least) / (right / images * ends[place] - least)
        whole = np.round(optimality) + 0.0  # not -0; sums round otherwise on each kind of processor
        return np.where(np.abs(optimality - whole) < _ROUNDING, whole, optimality)


def _largest_drawn(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The largest value (n,) among the images of each replicate, (R,); any value where it has none of them."""
    order = np.argsort(-values, kind="stable")
    place, left, looked = np.zeros(len(counts), int), np.arange(len(counts)), 0
    while len(left) and looked < len(order):
        met = counts[np.ix_(left, order[looked : looked + _FEW])] > 0
        place[left] = looked + met.argmax(1)
        left, looked = left[~met.any(1)], looked + _FEW
    return values[order[place]]


def draw_half_distortion(counts: np.ndarray, distances: np.ndarray, measured: float | None = None) -> np.ndarray:
    """`metrics.half_distortion` of distances (n,), in each replicate; row 0 is what the metric itself gives.

    Args:
        counts: from `resample`, shape (R, n).
        distances: of each image, shape (n,), >= 0.
        measured: what the metric gives, where that is known.
    """
    fallen = np.flatnonzero((distances > 0) & np.isfinite(distances))
    fallen = fallen[np.argsort(distances[fallen], kind="stable")]
    steps, begins = np.unique(distances[fallen], return_index=True)
    right = _products(counts, (distances > 0)[:, None].astype(float))[:, 0]
    if len(steps):
        known, fit = np.empty(len(counts)), _ExponentialFit(steps)
        for rows in _groups(len(counts), len(fallen), _IN_CACHE):
            at_each = counts[rows.start : rows.stop].take(fallen, 1)
            if len(steps) < len(fallen):
                at_each = np.add.reduceat(at_each, begins, axis=1, dtype=np.int32)
            known[rows.start : rows.stop] = fit.halves(at_each, right[rows.start : rows.stop])
    else:
        known = np.where(right > 0, math.inf, math.nan)
    known[0] = half_distortion(torch.tensor(distances)).value if measured is None else measured
    return known


class _ExponentialFit:
    """The half distortion of every replicate, as `metrics.half_distortion` defines it.

    In a replicate the accuracy just after step s is a_s = 1 - (fallen up to s) / right; only steps at which an image
    falls count. The rate r of exp(-r d) minimises F = sum over them of exp(-r d_s)^2 - 2 a_s exp(-r d_s), which is the
    sum of squares without its constant; the accuracy 1 at 0 adds nothing, as exp(0) = 1. For one rate after the other,
    and all replicates, that is two products of matrices. F is taken at a grid of rates far apart; then, between the
    neighbours of the best of them, at the nodes of Chebyshev. There F is a polynomial in u = ln r to 14 digits: as a
    function of a complex u it is bounded up to pi / 2 from the axis, and `_NODES` of them are enough for an interval of
    that width. The minimum of the polynomial is sought on a finer grid and by Newton's method from the best of that,
    no farther than its neighbours; a step is none where the curvature is not positive. Distances are divided by their
    mean, so that one grid suits all units.

    Args:
        steps: the distances at which an image falls in some replicate, rising, (S,).
    """

    def __init__(self, steps: np.ndarray):
        self.scale = float(steps.mean())
        self.scaled = steps / self.scale
        self.coarse = np.arange(0, len(_GUESSES), _APART)
        self.decays = self._decays(_GUESSES[self.coarse])
        self.near: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def halves(self, fallen: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Infinite where no image falls; NaN where none is right, or all fall at one distance, which no rate fits.

        Args:
            fallen: images at each of the steps, (R, S).
            right: images that are right when clean, (R,).
        """
        met = (fallen > 0).astype(float)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = 1 - fallen.cumsum(1, dtype=np.int32) / right[:, None]
        left = np.take_along_axis(share, met.argmax(1)[:, None], axis=1)[:, 0]
        share[right == 0] = 0  # none of them falls
        share *= met
        coarse = self.coarse[_misfits(met, share, self.decays).argmin(1)]
        rate = np.empty(len(met))
        for place in np.unique(coarse):
            rows = np.flatnonzero(coarse == place)
            chosen = (met, share) if len(rows) == len(met) else (met[rows], share[rows])
            rate[rows] = _least(_misfits(*chosen, self._near(int(place))), int(place))
        half = np.where(met.any(1), math.log(2) / np.exp(rate) * self.scale, math.inf)
        return np.where((right == 0) | (met.any(1) & (left <= 0)), math.nan, half)

    def _near(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        if place not in self.near:
            self.near[place] = self._decays(np.exp(_centre(place) + _REACH * _chebyshev_nodes()))
        return self.near[place]

    def _decays(self, rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The exponentials of some rates at every step, (S, rates), and their squares."""
        decays = np.exp(-np.outer(self.scaled, rates))
        return decays, np.square(decays)


def _misfits(met: np.ndarray, share: np.ndarray, decays: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    return met @ decays[1] - 2 * share @ decays[0]


def _chebyshev_nodes() -> np.ndarray:
    return np.cos((np.arange(_NODES) + 0.5) * math.pi / _NODES)


def _centre(place: int) -> float:
    """The logarithm of a guess."""
    return float(np.log(_GUESSES[place]))


def _least(misfits: np.ndarray, place: int) -> np.ndarray:
    """Where each polynomial has its minimum near a guess, as the logarithm of a rate, (R,).

    Args:
        misfits: at the nodes around the guess, (R, nodes).
        place: of the guess.
    """
    chebyshev = np.polynomial.chebyshev
    terms = np.linalg.inv(chebyshev.chebvander(_chebyshev_nodes(), _NODES - 1)) @ misfits.T
    near = np.arange(max(0, place - _APART), min(len(_GUESSES), place + _APART + 1))
    at_guesses = (np.log(_GUESSES[near]) - _centre(place)) / _REACH
    best = near[(chebyshev.chebvander(at_guesses, _NODES - 1) @ terms).argmin(0)]
    ends = _GUESSES[(best - 1).clip(0)], _GUESSES[best], _GUESSES[(best + 1).clip(max=len(_GUESSES) - 1)]
    low, least, high = ((np.log(each) - _centre(place)) / _REACH for each in ends)
    slope, bend = (chebyshev.chebder(terms, times) for times in (1, 2))
    for _ in range(_NEWTON):
        first, second = (chebyshev.chebval(least, each, tensor=False) for each in (slope, bend))
        least = np.clip(least - first / np.where(second > 0, second, math.inf), low, high)
    return _centre(place) + _REACH * least


def _products(counts: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Sums of columns (n, C) over the images of each replicate, (R, C)."""
    return _by_groups(lambda drawn: drawn @ columns, counts, columns, _IN_CACHE)


def _by_groups(
    function: Callable[[np.ndarray], np.ndarray], counts: np.ndarray, like: np.ndarray, most: int = _AT_ONCE
) -> np.ndarray:
    """A function of rows of counts, applied to as many as memory holds at once."""
    parts = [function(counts[rows.start : rows.stop].astype(float)) for rows in _groups(len(counts), len(like), most)]
    return np.concatenate(parts)


def _groups(rows: int, columns: int, most: int = _AT_ONCE) -> Iterator[range]:
    size = max(1, most // max(columns, 1))
    return (range(start, min(start + size, rows)) for start in range(0, rows, size))
